#!/bin/sh
# readme.sh RESULTS: writes what was measured into the pages, between marker comments, so that no figure is
# ever typed: into README.md the table of the last `make lessons` and that of the steps beside PyTorch, into
# each lesson's page what that lesson printed, and beside it the pictures that it shows.
results=$1
. tests/tools/pictures.sh
[ -s "$results" ] || { echo "readme: no results yet; run 'make lessons' first" >&2; exit 1; }

# put WHAT PAGE: standard input replaces what stands in PAGE between "<!-- WHAT…" and "<!-- end of WHAT -->".
put() {
  cat >build/part.md
  awk -v begin="<!-- $1" -v end="<!-- end of $1 -->" '
    index($0, end) { inside = 0 }
    !inside { print }
    index($0, begin) { inside = 1; while ((getline line < "build/part.md") > 0) print line }
  ' "$2" >build/page.md && cp build/page.md "$2" && echo "readme: $2: $1"
}

awk -v table=markdown -f tests/tools/results.awk "$results" | put results README.md
awk -f tests/tools/beside.awk tests/bench/results/*/beside_pytorch.jsonl | put speed README.md
for page in lessons/[0-9][0-9]_*/README.md; do
  name=$(basename "$(dirname "$page")")
  log=$(dirname "$results")/${name%%_*}.log
  if [ -s "$log" ]; then { echo '```'; cat "$log"; echo '```'; } | put output "$page"; fi
  for picture in $(shown_on "$page"); do
    cp "build/plots/$picture" "$(dirname "$page")/" && echo "readme: $page: $picture"
  done
done
