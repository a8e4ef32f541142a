#!/bin/sh
# readme.sh RESULTS: replaces what stands between the two marker comments of README.md by the table of the last
# `make lessons`, so that no figure there is ever typed.
results=$1
[ -s "$results" ] || { echo "readme: no results yet; run 'make lessons' first" >&2; exit 1; }
awk -v table=markdown -f tests/tools/results.awk "$results" >build/table.md || exit 1
awk '
  /<!-- end of results -->/ { inside = 0 }
  !inside { print }
  /<!-- results of/ { inside = 1; while ((getline line < "build/table.md") > 0) print line }
' README.md >build/README.md && cp build/README.md README.md && echo "readme: README.md holds the table of $results"
