#!/bin/sh
# faster.sh PROGRAM [FLAG...]: runs it (make faster-NN) and records how it ended: passed is what is right and not
# slower than the given kernel.
output=$("$@")
status=$?
echo "$output"
echo "$output" | awk '
  /^faster [0-9.]*: / {
    id = $2; sub(/:/, "", id)
    detail = $0; sub(/^faster [0-9.]*: /, "", detail)
    state = $3 == "wrong:" ? "failed" : $3 == "right;" && $4 >= 1 ? "passed" : "open"
    print id " " state " " detail
  }' | while read -r id state detail; do sh "$(dirname "$0")/progress.sh" record "$id" "$state" "$detail"; done
exit $status
