#!/bin/sh
# Times data-parallel training steps of 2 processes of one thread, in alternating runs: gradus under MPI, and PyTorch's
# DistributedDataParallel over gloo. Prints JSON lines as beside_pytorch.sh does, and at the end a table of the medians
# (on stderr). Communication is the part of a step that a step without all-reduce does not take, as a fraction.
#
#   make MPI=1 build/mpi/bench/parallel && PYTHON=... sh tests/bench/beside_ddp.sh [ROUNDS]
set -eu
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
export OMP_NUM_THREADS=1

# line MODEL PROGRAM: prints each field of the JSON line on standard input as a line of its own.
line() {
  read -r measured
  for field in ms_per_step communication; do
    value=$(echo "$measured" | sed -n "s/.*\"$field\": *\(-*[0-9.e-]*\).*/\1/p")
    suffix=$([ $field = communication ] && echo ' communication' || true)
    echo "{\"model\":\"$1$suffix\",\"device\":\"cpu\",\"program\":\"$2\",\"$field\":${value:-null}}" | tee -a "$lines"
  done
}
# compare MODEL LAYERS HEADS DIM VOCAB SEQ BATCH
compare() {
  model=$1
  set -- --layers "$2" --heads "$3" --dim "$4" --vocab "$5" --seq "$6" --batch "$7"
  sh tests/tools/mpiexec.sh 2 build/mpi/bench/parallel $(echo "$@" | sed 's/ \([0-9]\)/=\1/g') | line "$model" gradus
  "${PYTHON:-python3}" tests/bench/peers/gpt_step.py --ranks 2 "$@" --steps 40 2>/dev/null | line "$model" pytorch-eager
}
for round in $(seq "${1:-3}"); do
  compare '2 ranks 0.8M' 4 4 128 256 64 12
  compare '2 ranks 10.8M' 6 6 384 256 128 4
done
awk -f tests/tools/speed.awk "$lines" >&2
