#!/bin/sh
# Training steps of gradus and of the same model in PyTorch, in turns, so that both meet the same moments of
# a shared machine. Prints a JSON line for each run, and at the end a table of the medians (on stderr).
#
#   sh tests/bench/beside_pytorch.sh cpu [ROUNDS]      after `make`
#   sh tests/bench/beside_pytorch.sh cuda [ROUNDS]     after `make CUDA=1`
#
# PYTHON=… names the interpreter that has torch. Ahead of the steps stand the products of matrices of both, which
# explain most of the difference.
set -eu
device=$1 rounds=${2:-3} peers=tests/bench/peers
case $device in
cpu) step=build/bench/step ours= theirs= ;;
cuda) step=build/cuda/bench/step ours='--recipe=mixed --attention=flash' theirs='--cuda --bf16' ;;
*) echo "beside_pytorch: the device is cpu or cuda, not $device" >&2 && exit 2 ;;
esac
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-1000}"
lines=$(mktemp) errors=$(mktemp)
trap 'rm -f "$lines" "$errors"' EXIT

# line MODEL PROGRAM FIELD: of the JSON line on standard input, the number in that field.
line() {
  value=$(sed -n "s/.*\"$3\": *\([0-9.]*\).*/\1/p")
  [ -n "$value" ] || cat "$errors" >&2
  echo "{\"model\":\"$1\",\"device\":\"$device\",\"program\":\"$2\",\"$3\":${value:-null}}" | tee -a "$lines"
}
python() { "${PYTHON:-python3}" "$peers/$@" $theirs 2>"$errors"; }

# run PROGRAM BATCH SEQ STEPS LAYERS HEADS DIM VOCAB [FLAG…]: its JSON line. The flags are PyTorch's;
# --checkpoint is for both.
run() {
  program=$1 batch=$2 seq=$3 steps=$4 layers=$5 heads=$6 dim=$7 vocab=$8
  shift 8
  case $program in
  gradus)
    case "$*" in *--checkpoint*) keep=input ;; *) keep=all ;; esac
    case "$*" in *--bf16*) ours=--recipe=mixed ;; esac
    $step --device="$device" $ours --batch="$batch" --seq="$seq" --steps="$steps" --layers="$layers" \
      --heads="$heads" --dim="$dim" --vocab="$vocab" --keep=$keep
    ;;
  pytorch-*)
    [ "$program" = pytorch-eager ] || set -- "$@" --compile
    python gpt_step.py --batch "$batch" --seq "$seq" --steps "$steps" --layers "$layers" --heads "$heads" \
      --dim "$dim" --vocab "$vocab" "$@"
    ;;
  esac
}

# in_turns FIELD NAME PROGRAMS BATCH … as for run: that field of each program's JSON line.
in_turns() {
  field=$1 name=$2 programs=$3
  shift 3
  for program in $(for r in $(seq "$rounds"); do echo "$programs"; done); do
    run "$program" "$@" | line "$name" "$program" "$field"
  done
}
beside() { in_turns ms_per_step "$@"; } # the time of a step
# peak NAME BATCH … as for run: the bytes that a step has allocated at the most.
peak() {
  name=$1
  shift
  run gradus "$@" | line "$name" gradus peak_bytes
  run pytorch-eager "$@" --peak | line "$name" pytorch-eager peak_bytes
}

# products NAME [--bf16]: the rate of large products.
products() {
  name=$1
  shift
  for round in $(seq "$rounds"); do
    run gradus 4 64 2 1 4 128 256 "$@" | line "$name" gradus gemm_peak_gflops
    python product.py "$@" | line "$name" pytorch-eager gemm_peak_gflops
  done
}
products products
all='gradus pytorch-eager gradus pytorch-compiled' eager='gradus pytorch-eager'
if [ "$device" = cpu ]; then
  beside small "$all" 8 64 100 4 4 128 256
  beside gpt2-124M-T64 "$all" 4 64 5 12 12 768 50257
  set -- 4 256 3 12 12 768 50257
  beside gpt2-124M-T256 "$all" "$@"
  products 'products bf16' --bf16
  beside 'gpt2-124M-T256 bf16' "$all" "$@" --bf16
  beside 'gpt2-124M-T256 checkpointed' "$eager" "$@" --checkpoint
  peak 'gpt2-124M-T256 peak' "$@"
  peak 'gpt2-124M-T256 checkpointed peak' "$@" --checkpoint
else
  beside gpt2-124M-T1024 "$all" 16 1024 30 12 12 768 50257
  in_turns ms_update 'gpt2-124M update' "$eager" 1 64 10 12 12 768 50257 --update
fi

awk -f tests/tools/beside.awk "$lines" >&2
! grep -q null "$lines" # what could not be measured
