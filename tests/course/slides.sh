#!/bin/sh
# slides.sh [NN]: writes the slides of lesson NN, or of every lesson, from its page (make slides-NN, make slides):
# build/slides/NN.html, one file that needs nothing else.
here=$(dirname "$0")
refuse() { echo "slides: $*" >&2; exit 2; }

case $1 in
  "") pages=$(ls lessons/[0-9][0-9]_*/README.md 2>/dev/null) ;;
  [0-9][0-9]) pages=$(ls lessons/"$1"_*/README.md 2>/dev/null) ;;
esac
[ -n "$pages" ] || refuse "there is no lesson${1:+ '$1'}; write make slides-NN, or make slides for all"
mkdir -p build/slides && scratch=$(mktemp build/slides/scratch.XXXXXX) || refuse "build/slides cannot be written to"
trap 'rm -f "$scratch" "$scratch".*' EXIT

for page in $pages; do
  file=build/slides/$(basename "$(dirname "$page")" | cut -c1-2).html
  rm -f "$file"
  # In the locale C all versions of awk count bytes.
  LC_ALL=C awk -v here="$here" -v scratch="$scratch.md" -f "$here/page_parts.awk" -f "$here/page_html.awk" \
    -f "$here/slides.awk" "$page" >"$scratch.html" && mv "$scratch.html" "$file" || exit 2
  echo "slides: $file: $(grep -c '^<section' "$file") slides, $(wc -c <"$file") bytes"
done
