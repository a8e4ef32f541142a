#!/bin/sh
# Times encoding and decoding a text on one thread: gradus, tiktoken and Hugging Face's tokenizers, in alternating runs,
# with the same 8,000 merges. Prints the JSON lines of each. The numbers of tokens must be equal.
#
#   make build/bench/byte_pairs && PYTHON=... sh tests/bench/beside_tokenizers.sh FILE [ROUNDS]
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for round in $(seq "${2:-3}"); do
  build/bench/byte_pairs "$1" "$folder"
  "${PYTHON:-python3}" tests/bench/peers/tokens.py "$1" "$folder"
done
