#!/bin/sh
# Encoding and decoding a text on one thread: ours, tiktoken and Hugging Face's tokenizers, in turns, with the same 8,000
# merges. Prints the JSON lines of each. The number of tokens has to be the same.
#
#   make build/bench/byte_pairs && PYTHON=... sh tests/bench/beside_tokenizers.sh FILE [ROUNDS]
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for round in $(seq "${2:-3}"); do
  build/bench/byte_pairs "$1" "$folder"
  "${PYTHON:-python3}" tests/bench/peers/tokens.py "$1" "$folder"
done
