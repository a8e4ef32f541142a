#!/bin/sh
# make curves: writes curves/NAME.jsonl, the expected losses of some runs of the trainer. A run has 30 intervals. Each
# interval has a line with the mean loss over seeds 1, 2 and 3, and the smallest and the largest loss of a seed.
#   sh curves.sh GRADUS
set -eu
gradus=$1
folder=$(dirname "$0")/curves
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder"

# NAME STEPS FLAGS…
curve() {
  name=$1 steps=$2
  shift 2
  for seed in 1 2 3; do
    "$gradus" train --steps="$steps" --seed=$seed --curve="$work/$seed.jsonl" "$@" >/dev/null
  done
  paste -d' ' "$work"/[123].jsonl | awk -v every=$((steps / 30)) '
    {
      n = 0
      for (i = 1; i <= NF; ++i) if (match($i, /"loss":[^,]*/)) sum[++n] += substr($i, RSTART + 7, RLENGTH - 7)
    }
    NR % every == 0 {
      mean = 0; least = most = sum[1] / every
      for (k = 1; k <= 3; ++k) {
        x = sum[k] / every; mean += x / 3; sum[k] = 0
        if (x < least) least = x
        if (x > most) most = x
      }
      printf "{\"step\":%d,\"mean\":%.4f,\"least\":%.4f,\"most\":%.4f}\n", NR, mean, least, most
    }' >"$folder/$name.jsonl"
  echo "$folder/$name.jsonl: gradus train --steps=$steps $*"
}

small="--context=64 --batch=8"
curve gpt 300
curve gpt-mixed-8bit 300 --precision=mixed --optimizer=adamw8bit
curve gpt-lesson-03 3000 $small --text-bytes=1200000 --lr=2e-3 --warmup=100 --beta2=0.99 --weight-decay=0.1
curve llama 1500 $small --model=gpt-2x64x4 --blocks=llama --kv-heads=2 --mlp=64 --lr=3e-3
curve mixture 1500 $small --model=gpt-2x64x4 --blocks=llama --kv-heads=2 --mlp=32 --experts=8 --capacity=1.25 \
  --balance=0.01 --lr=3e-3
