#!/bin/sh
# cudnn.sh CUDA_HOME CUDNN_HOME: the cuDNN that a build with CUDA=1 finds, in CUDNN_HOME if that is not empty: one
# line, "found 9.19.0", "old 9.10.0" (of which faults are known, so it is left out) or "missing".
oldest=$(sed -n 's/.*kOldestCudnn = \([0-9]*\);.*/\1/p' kernels/cuda/attention_calls.h)
if [ -n "$2" ]; then
  [ -f "$2/lib/libcudnn.so.9" ] || { echo missing; exit; }
  set -- "$2/include"
else
  set -- "$1/include" /usr/include
fi
for include; do
  [ -f "$include/cudnn.h" ] || continue
  awk -v oldest="$oldest" '
    $2 == "CUDNN_MAJOR" { a = $3 }
    $2 == "CUDNN_MINOR" { b = $3 }
    $2 == "CUDNN_PATCHLEVEL" { c = $3 }
    END { print (a * 10000 + b * 100 + c < oldest ? "old" : "found"), a "." b "." c }' "$include/cudnn_version.h"
  exit
done
echo missing
