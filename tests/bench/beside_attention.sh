#!/bin/sh
# Flash attention of gradus and scaled_dot_product_attention of PyTorch, in turns, in fp32 and in bf16. Prints the
# JSON lines of each.
#
#   make build/bench/attention && OMP_NUM_THREADS=1 PYTHON=... sh tests/bench/beside_attention.sh [ROUNDS]
set -eu
for round in $(seq "${1:-3}"); do
  build/bench/attention
  "${PYTHON:-python3}" tests/bench/peers/attention.py
  build/bench/attention --dtype=bf16
  "${PYTHON:-python3}" tests/bench/peers/attention.py --bf16
done
