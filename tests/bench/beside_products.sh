#!/bin/sh
# Times each matrix product of a training step in gradus and in PyTorch, in alternating runs. Prints the JSON lines of
# both, and at the end a table of the medians (on stderr).
#
#   make build/bench/products && PYTHON=... sh tests/bench/beside_products.sh cpu [ROUNDS]
#   make CUDA=1 build/cuda/bench/products && PYTHON=... sh tests/bench/beside_products.sh cuda [ROUNDS]
set -eu
case $1 in
cpu) products=build/bench/products torch_flag= ;;
cuda) products=build/cuda/bench/products torch_flag=--cuda ;;
*) echo "beside_products: the device is cpu or cuda, not $1" >&2 && exit 2 ;;
esac
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-3000}"
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
for round in $(seq "${2:-3}"); do
  $products --device="$1" >>"$lines"
  "${PYTHON:-python3}" tests/bench/peers/products.py $torch_flag >>"$lines"
done
cat "$lines"
awk -f tests/tools/speed.awk "$lines" >&2
