#!/bin/sh
# Times training steps of gradus and of the same model in PyTorch, in alternating runs, because the speed of a shared
# machine changes. Prints one JSON line per run, and at the end a table of the medians (on stderr).
#
#   sh tests/bench/beside_pytorch.sh cpu [ROUNDS]      after `make`
#   sh tests/bench/beside_pytorch.sh cuda [ROUNDS]     after `make CUDA=1`
#
# PYTHON=… names the interpreter that has torch. Before the steps it times the matrix products of both programs, which
# explain most of the difference.
set -eu
device=$1 rounds=${2:-3} peers=tests/bench/peers
case $device in
cpu) step=build/bench/step our_flags= torch_flags= ;;
cuda) step=build/cuda/bench/step our_flags='--recipe=mixed --attention=flash' torch_flags='--cuda --bf16' ;;
*) echo "beside_pytorch: the device is cpu or cuda, not $device" >&2 && exit 2 ;;
esac
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-3000}"
lines=$(mktemp) errors=$(mktemp)
trap 'rm -f "$lines" "$errors"' EXIT

# line MODEL PROGRAM FIELD: prints the number in this field of the JSON line on standard input, as a line of its own.
line() {
  value=$(sed -n "s/.*\"$3\": *\([0-9.]*\).*/\1/p")
  [ -n "$value" ] || cat "$errors" >&2
  echo "{\"model\":\"$1\",\"device\":\"$device\",\"program\":\"$2\",\"$3\":${value:-null}}" | tee -a "$lines"
}
python() { "${PYTHON:-python3}" "$peers/$@" $torch_flags 2>"$errors"; }

# run PROGRAM BATCH SEQ STEPS LAYERS HEADS DIM VOCAB [FLAG…]: prints its JSON line. The flags are PyTorch's;
# --checkpoint and --bf16 are for both.
run() {
  program=$1 batch=$2 seq=$3 steps=$4 layers=$5 heads=$6 dim=$7 vocab=$8
  shift 8
  case $program in
  gradus)
    case "$*" in *--checkpoint*) keep=input ;; *) keep=all ;; esac
    case "$*" in *--bf16*) our_flags=--recipe=mixed ;; esac
    $step --device="$device" $our_flags --batch="$batch" --seq="$seq" --steps="$steps" --layers="$layers" \
      --heads="$heads" --dim="$dim" --vocab="$vocab" --keep=$keep
    ;;
  pytorch-*)
    [ "$program" = pytorch-eager ] || set -- "$@" --compile
    python gpt_step.py --batch "$batch" --seq "$seq" --steps "$steps" --layers "$layers" --heads "$heads" \
      --dim "$dim" --vocab "$vocab" "$@"
    ;;
  esac
}

# alternate FIELD NAME PROGRAMS BATCH … as for run: prints this field of each program's JSON line.
alternate() {
  field=$1 name=$2 programs=$3
  shift 3
  for program in $(for r in $(seq "$rounds"); do echo "$programs"; done); do
    run "$program" "$@" | line "$name" "$program" "$field"
  done
}
steps() { alternate ms_per_step "$@"; } # the time of a step
# peak NAME BATCH … as for run: the peak of the bytes that a step allocates.
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
  steps small "$all" 8 64 100 4 4 128 256
  steps gpt2-124M-T64 "$all" 4 64 5 12 12 768 50257
  set -- 4 256 3 12 12 768 50257
  steps gpt2-124M-T256 "$all" "$@"
  products 'products bf16' --bf16
  steps 'gpt2-124M-T256 bf16' "$all" "$@" --bf16
  steps 'gpt2-124M-T256 checkpointed' "$eager" "$@" --checkpoint
  peak 'gpt2-124M-T256 peak' "$@"
  peak 'gpt2-124M-T256 checkpointed peak' "$@" --checkpoint
else
  steps gpt2-124M-T1024 "$all" 16 1024 30 12 12 768 50257
  alternate ms_update 'gpt2-124M update' "$eager" 1 64 10 12 12 768 50257 --update
fi

awk -f tests/tools/speed.awk "$lines" >&2
! grep -q null "$lines" # fails if something could not be measured
