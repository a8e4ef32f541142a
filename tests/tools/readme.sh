#!/bin/sh
# readme.sh RESULTS: writes measured numbers into the pages, between marker comments, so that no number is typed: the table
# of the last `make lessons` into README.md, and the times compared with PyTorch's into tests/bench/README.md. Each lesson's
# folder gets the pictures that its page shows, and output.txt, the output of the lesson. page.awk writes numbers of
# output.txt, and the small example that the program prints, into the page.
results=$1
. tests/tools/pictures.sh
[ -s "$results" ] || { echo "readme: no results yet; run 'make lessons' first" >&2; exit 1; }

# put WHAT PAGE: standard input replaces the lines of PAGE between "<!-- WHAT…" and "<!-- end of WHAT -->".
put() {
  cat >build/part.md
  awk -v begin="<!-- $1" -v end="<!-- end of $1 -->" '
    index($0, end) { inside = 0 }
    !inside { print }
    index($0, begin) { inside = 1; while ((getline line < "build/part.md") > 0) print line }
  ' "$2" >build/page.md && cp build/page.md "$2" && echo "readme: $2: $1"
}

awk -v table=markdown -f tests/tools/results.awk "$results" | put results README.md
for machine in tests/bench/results/*/; do
  echo "On $(basename "$machine" | tr - ' '):"
  echo
  cat "$machine"beside_*.jsonl | awk -f tests/tools/speed.awk
  echo
done | put speed tests/bench/README.md
for page in lessons/[0-9][0-9]_*/README.md; do
  folder=$(dirname "$page")
  name=${folder##*/}
  log=$(dirname "$results")/${name%%_*}.log
  [ ! -s "$log" ] || cp "$log" "$folder/output.txt"
  "build/lessons/$name" --print=example >build/example.txt || exit 1
  awk -v output="$folder/output.txt" -v example=build/example.txt -f tests/tools/page.awk "$page" >build/page.md &&
    cp build/page.md "$page" && echo "readme: $page" || exit 1
  for picture in $(shown_on "$page"); do
    cp "$(dirname "$results")/$picture" "$folder/" && echo "readme: $page: $picture"
  done
done
