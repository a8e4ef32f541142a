#!/bin/sh
# run_lessons.sh FOLDER PROGRAM...: runs the lessons in order with default flags. Each writes its report to
# FOLDER/NN.json. Its output is kept in FOLDER/NN.log, and its pictures in FOLDER, because later runs overwrite those in
# build/plots. A table of results follows. All lessons run even if one fails; the exit code is then 1.
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
