#!/bin/sh
# Training steps of 2 ranks of one thread: ours under MPI, and PyTorch's DistributedDataParallel over gloo, in turns.
# Prints a JSON line for each run.
#
#   make MPI=1 build/mpi/bench/parallel && PYTHON=... sh tests/bench/beside_ddp.sh [ROUNDS]
set -eu
for round in $(seq "${1:-3}"); do
  for size in "4 4 128 256 64 12" "6 6 384 256 128 4"; do
    set -- $size
    OMP_NUM_THREADS=1 sh tests/tools/mpiexec.sh 2 build/mpi/bench/parallel --layers="$1" --heads="$2" --dim="$3" \
      --vocab="$4" --seq="$5" --batch="$6"
    OMP_NUM_THREADS=1 "${PYTHON:-python3}" tests/bench/peers/gpt_step.py --ranks 2 --layers "$1" --heads "$2" --dim "$3" \
      --vocab "$4" --seq "$5" --batch "$6" --steps 40
  done
done
