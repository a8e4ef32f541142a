#!/bin/sh
# Times attention_flash of gradus and scaled_dot_product_attention of PyTorch in alternating runs, in fp32 and in bf16.
# Prints the JSON lines of both, and at the end a table of the medians (on stderr). LENGTHS=512,1024 sets the lengths.
#
#   make build/bench/attention && OMP_NUM_THREADS=1 PYTHON=... sh tests/bench/beside_attention.sh cpu [ROUNDS]
#   make CUDA=1 build/cuda/bench/attention && PYTHON=... sh tests/bench/beside_attention.sh cuda [ROUNDS]
set -eu
device=$1
case $device in
cpu) attention=build/bench/attention torch_flag= ;;
cuda) attention=build/cuda/bench/attention torch_flag=--cuda ;;
*) echo "beside_attention: the device is cpu or cuda, not $device" >&2 && exit 2 ;;
esac
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
set -- "${2:-3}" --lengths="${LENGTHS:-512,1024,8192}"
for round in $(seq "$1"); do
  for dtype in "" bf16; do
    $attention --device="$device" "$2" ${dtype:+--dtype=$dtype}
    product=$("${PYTHON:-python3}" tests/bench/peers/product.py $torch_flag ${dtype:+--$dtype})  # no pipe, so that a failure ends this
    gflops=$(echo "$product" | sed 's/.*gflops": *\([0-9.]*\).*/\1/')
    echo "{\"model\":\"products ${dtype:-fp32}\",\"device\":\"$device\",\"program\":\"pytorch-eager\",\"gflops\":$gflops}"
    "${PYTHON:-python3}" tests/bench/peers/attention.py $torch_flag "$2" ${dtype:+--$dtype}
  done
done >"$lines"
cat "$lines"
awk -f tests/tools/speed.awk "$lines" >&2
