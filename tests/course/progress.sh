#!/bin/sh
# progress.sh record ID STATE DETAIL   a line for build/progress.tsv: id, passed|failed|open, the hash of the sources
#                                      that it depends on, what is to be said (or HASH, if taken before a run)
# progress.sh hash NN                  the hash of lesson NN's sources as they are now
# progress.sh show                     all lessons on one screen; builds nothing (make progress)
# The last line of an id in build/progress.tsv counts. A line is added in one piece, so two runs at once lose nothing.
tools=$(cd "$(dirname "$0")" && pwd)
file=build/progress.tsv

# A result depends on the engine, on the lesson's own sources, on its tests; one of a prediction on the answers too.
hashes() {
  find kernels src lessons tests -type f | grep -E '\.(h|cpp|cu|inc)$|^lessons/[^/]*/answers\.txt$' |
    LC_ALL=C sort | xargs cksum | awk -f "$tools/hashes.awk" - $(find tests -name '*_test.cpp' | sort)
}
hash_of() { hashes | awk -v id="$1" '$1 "" == id { print $2 }'; }
exercises() { awk -f "$tools/pages.awk" lessons/[0-9][0-9]_*/README.md; }

record() {
  case $2 in passed | failed | open) ;; *) echo "progress: a state is passed, failed or open, not '$2'" >&2; exit 2 ;; esac
  judge=$(exercises | awk -F '\t' -v id="$1" '$1 "" == id { print $4 }')
  [ -n "$judge" ] || { echo "progress: no lesson's page has an exercise '$1'" >&2; exit 2; }
  key=${1%.*}
  [ "$judge" != predict ] || key=$key.answers
  mkdir -p build
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "${HASH:-$(hash_of "$key")}" "$(printf %s "$3" | tr '\t\n' '  ')" >>"$file"
}

show() {
  look=plain
  [ ! -t 1 ] || [ -n "$NO_COLOR" ] || look=colour
  [ -e "$file" ] || { mkdir -p build && : >"$file"; }
  { hashes; echo; exercises; echo; cat "$file"; } |
    awk -v look="$look" -v lessons="$(echo lessons/[0-9][0-9]_*)" -f "$tools/progress.awk"
}

case $1 in
  record) record "$2" "$3" "$4" ;;
  hash) hash_of "$2" ;;
  show) show ;;
  *) echo "progress: write make progress" >&2; exit 2 ;;
esac
