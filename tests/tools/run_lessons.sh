#!/bin/sh
# run_lessons.sh FOLDER PROGRAM...: runs the lessons in order with default flags. Each writes its report to
# FOLDER/NN.json; a table of results follows. All are run even when one fails, which the exit code tells.
folder=$1
shift
results=$folder/results.tsv
: >"$results"
for program; do
  name=$(basename "$program")
  json=$folder/${name%%_*}.json
  rm -f "$json"
  echo "---- lesson $name"
  start=$(date +%s)
  "$program" --json="$json"
  status=$?
  echo
  printf '%s\t%s\t%s\n' "$name" $status $(($(date +%s) - start)) >>"$results"
done
awk -v table=text -f tests/tools/results.awk "$results"
