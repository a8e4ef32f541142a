#!/bin/sh
# checked.sh changed       the lessons that are not as `make check-course` last found them good
# checked.sh hash NN       a hash over what the exercises of lesson NN need: the lesson's sources, its hints, the lines
#                          of its page that name exercises, its bugs and the files they change, the files with its marks, the tests that record them
#                          with what these include of tests, and its judges
# checked.sh record NN H   keeps, in tests/course/checked.txt, that lesson NN was found good with the hash H
tools=$(cd "$(dirname "$0")" && pwd)
record=tests/course/checked.txt

# These files, and the files of tests that they include, and so on.
with_includes() {
  all=$(printf '%s\n' "$@" | sort -u)
  more=$({ echo "$all"; cat $all | sed -n 's|^#include "\(tests/.*\)"$|\1|p'; } | sort -u)
  if [ "$more" = "$all" ]; then echo "$all"; else with_includes $more; fi
}
needs() {
  folder=$(ls -d lessons/"$1"_*)
  find "$folder" -type f | grep -E '\.(h|cpp|cu|patch)$|/hints\.md$'
  grep -rlE "BEGIN SOLUTION $1\." kernels src
  cat "$folder"/*.patch /dev/null 2>/dev/null | sed -n 's|^+++ b/||p'
  with_includes $(grep -rlF "\"exercise\", \"$1." tests --include=*_test.cpp)
  ls tests/course/predict_"$1".cpp tests/course/faster_"$1".cpp 2>/dev/null
}
hash_of() {
  { sha256sum $(needs "$1" | LC_ALL=C sort -u) && grep -hsE "^- $1\.[0-9]" lessons/"$1"_*/README.md; } |
    sha256sum | cut -c1-16
}

case $1 in
  hash) hash_of "$2" ;;
  changed)
    for nn in $(ls -d lessons/[0-9][0-9]_* | sed 's|lessons/\(..\)_.*|\1|'); do
      grep -qsx "$nn $(hash_of "$nn")" $record || echo "$nn"
    done ;;
  record)
    mkdir -p tests/course
    { grep -sv "^$2 " $record; echo "$2 $3"; } | sort >"$record.new" && mv "$record.new" $record ;;
  *) echo "checked: write make check-course" >&2; exit 2 ;;
esac
