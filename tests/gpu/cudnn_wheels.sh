#!/bin/sh
# cudnn_wheels.sh [VERSION...]: does attention_cudnn.cpp compile with these versions of cuDNN's front end, and do they
# accept its graphs? By default the newest version and two older ones, of 2025. Needs CUDA, cuDNN 9 in CUDNN_HOME, pip
# and a network, but no GPU. Takes a minute per version; exit code 1 if one fails.
set -u
cuda=${CUDA_HOME:-/usr/local/cuda} cudnn=${CUDNN_HOME:-${CUDA_HOME:-/usr/local/cuda}}
folder=build/cudnn status=0
mkdir -p $folder
for version in ${*:-newest 1.22.0 1.12.0}; do
  wheel=$folder/$version
  [ "$version" = newest ] && package=nvidia-cudnn-frontend || package=nvidia-cudnn-frontend==$version
  python3 -m pip -q download --no-deps --only-binary :all: -d "$wheel" "$package" &&
    python3 -m zipfile -e "$wheel"/*.whl "$wheel" &&
    ${CXX:-g++} -std=c++20 -Wall -Wextra -I. -DGRADUS_CUDNN -isystem "$wheel/include" -isystem "$cudnn/include" \
      -isystem "$cuda/include" kernels/cuda/attention_cudnn.cpp tests/kernels/cudnn_test.cpp -o "$wheel/test" \
      -L"$cuda/lib64" -Wl,-rpath,"$cudnn/lib64:$cudnn/lib" -lgtest_main -lgtest -lcudart_static -ldl -lrt -pthread &&
    "$wheel/test" >"$wheel/log" || status=1
  grep -hE 'GPU|PASSED|FAILED|SKIPPED' "$wheel/log"
  grep -h 'define CUDNN_FRONTEND_[MP][AI][A-Z]*_VERSION' "$wheel/include/cudnn_frontend_version.h"
done
exit $status
