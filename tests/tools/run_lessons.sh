#!/bin/sh
# run_lessons.sh FOLDER PROGRAM...: runs the lessons in order with default flags. Each writes its report to
# FOLDER/NN.json; what it prints is kept in FOLDER/NN.log, its pictures in FOLDER too, for later runs draw over those
# in build/plots. A table of results follows. All are run even when one fails, which the exit code tells.
folder=$1
shift
results=$folder/results.tsv
: >"$results"
for program; do
  name=$(basename "$program")
  report=$folder/${name%%_*}
  rm -f "$report.json"
  echo "---- lesson $name"
  start=$(date +%s)
  { "$program" --json="$report.json"; echo $? >"$report.status"; } | tee "$report.log"
  status=$(cat "$report.status")
  cp build/plots/"${name%%_*}"_*.svg build/plots/"${name%%_*}"_*.png "$folder" 2>/dev/null
  echo
  printf '%s\t%s\t%s\n' "$name" $status $(($(date +%s) - start)) >>"$results"
done
awk -v table=text -f tests/tools/results.awk "$results"
