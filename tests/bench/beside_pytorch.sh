#!/bin/sh
# Training steps of gradus and of the same model in PyTorch, in turns, so that both meet the same moments of
# a shared machine. Prints a JSON line for each run, and at the end a table of the medians (on stderr).
#
#   sh tests/bench/beside_pytorch.sh cpu PEER.py [ROUNDS]      after `make`
#   sh tests/bench/beside_pytorch.sh cuda PEER.py [ROUNDS]     after `make CUDA=1`
#
# PEER.py takes --layers --heads --dim --vocab --batch --seq --steps, --bf16, --cuda and --compile, and prints
# "ms/step X". PYTHON=… names the interpreter.
set -eu
device=$1 peer=$2 rounds=${3:-3}
case $device in
cpu) step=build/bench/step ours= theirs= ;;
cuda) step=build/cuda/bench/step ours='--dtype=bf16 --attention=flash' theirs='--cuda --bf16' ;;
*) echo "beside_pytorch: the device is cpu or cuda, not $device" >&2 && exit 2 ;;
esac
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-1000}"
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT

# line MODEL PROGRAM MS
line() { echo "{\"model\":\"$1\",\"device\":\"$device\",\"program\":\"$2\",\"ms_per_step\":$3}" | tee -a "$lines"; }

# beside NAME BATCH SEQ STEPS LAYERS HEADS DIM VOCAB
beside() {
  for program in $(for r in $(seq "$rounds"); do echo gradus pytorch-eager gradus pytorch-compiled; done); do
    case $program in
    gradus)
      ms=$($step --device="$device" $ours --batch="$2" --seq="$3" --steps="$4" --layers="$5" --heads="$6" \
        --dim="$7" --vocab="$8" | sed -n 's/.*"ms_per_step":\([0-9.]*\).*/\1/p')
      ;;
    *)
      compile=$([ "$program" = pytorch-eager ] || echo --compile)
      ms=$("${PYTHON:-python3}" "$peer" $theirs $compile --batch "$2" --seq "$3" --steps "$4" --layers "$5" \
        --heads "$6" --dim "$7" --vocab "$8" 2>/dev/null | sed -n 's/.*ms\/step \([0-9.]*\).*/\1/p')
      ;;
    esac
    line "$1" "$program" "${ms:-null}"
  done
}

if [ "$device" = cpu ]; then
  beside small 8 64 100 4 4 128 256
  beside gpt2-124M-T64 4 64 5 12 12 768 50257
  beside gpt2-124M-T256 4 256 3 12 12 768 50257
else
  beside gpt2-124M-T1024 16 1024 30 12 12 768 50257
fi

awk -f tests/tools/beside.awk "$lines" >&2
