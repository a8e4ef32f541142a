#!/bin/sh
# readme.sh RESULTS: replaces what stands between the marker comments of README.md by the table of the last
# `make lessons`, and those of each lesson's page by what that lesson printed, so that no figure is ever typed.
results=$1
[ -s "$results" ] || { echo "readme: no results yet; run 'make lessons' first" >&2; exit 1; }
awk -v table=markdown -f tests/tools/results.awk "$results" >build/table.md || exit 1
awk '
  /<!-- end of results -->/ { inside = 0 }
  !inside { print }
  /<!-- results of/ { inside = 1; while ((getline line < "build/table.md") > 0) print line }
' README.md >build/README.md && cp build/README.md README.md && echo "readme: README.md holds the table of $results"

for page in lessons/[0-9][0-9]_*/README.md; do
  name=$(basename "$(dirname "$page")")
  log=$(dirname "$results")/${name%%_*}.log
  [ -s "$log" ] || continue
  awk -v log_file="$log" '
    /<!-- end of output -->/ { inside = 0 }
    !inside { print }
    /<!-- output -->/ {
      inside = 1
      print "```"
      while ((getline line < log_file) > 0) print line
      print "```"
    }
  ' "$page" >build/page.md && cp build/page.md "$page" && echo "readme: $page holds what the lesson printed"
done
