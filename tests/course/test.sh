#!/bin/sh
# test.sh NN | NN.k: judges the exercises of lesson NN, or one (make test-08, make test-08.2). Each is judged by its own
# tests, in a program and a process of their own: what is open in a loop of several threads, or crashes, ends no
# other's. What each is, passed, failed (with what) or open, is said and kept for `make progress`. With NN the other
# tests of the lesson follow. Exit code 1: something fails; what is open does not.
tools=$(cd "$(dirname "$0")" && pwd)
lesson=${1%%.*}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
page=$(ls lessons/"$lesson"_*/README.md)

refuse() { echo "test: $*" >&2; exit 2; }
awk -f "$tools/pages.awk" "$page" >"$work/exercises"
awk -f "$tools/tests.awk" $(find tests -name '*_test.cpp' | sort) | grep "^$lesson\." >"$work/tests"
find kernels src lessons -type f | grep -E '\.(h|cpp|cu|inc)$' | LC_ALL=C sort |
  xargs grep -nE "(BEGIN SOLUTION |EXERCISE |todo\(\")$lesson\.[0-9]" /dev/null >"$work/places"

# The exercises to judge: of a lesson those that its tests judge; a bug that is to be found, when it is asked for.
case $1 in
  *.*) cut -d' ' -f1 "$work/tests" | grep -xF "$1" | head -n 1 ;;
  *) awk -F'\t' '$4 == "tests" { print $1 }' "$work/exercises" ;;
esac >"$work/ids"
if [ "$1" != "$lesson" ] && [ ! -s "$work/ids" ]; then
  judge=$(awk -F'\t' -v id="$1" '$1 "" == id { print $4 }' "$work/exercises")
  case $judge in
    predict | faster) refuse "exercise $1 is judged by make $judge-$lesson" ;;
    *) refuse "no test judges an exercise $1; those of lesson $lesson are" $(cut -d' ' -f1 "$work/tests" | sort -u) ;;
  esac
fi
tests_of() { sed -n "s|^$1 [^ ]* \(.*\)|\1|p" "$work/tests"; }
HASH=$(sh "$tools/progress.sh" hash "$lesson")  # of the sources before they are built
export HASH

# Runs PROGRAM with FILTER; results: a line for each test (failures.awk), or one for its early end.
run() {
  rm -f "$work/xml"
  "$1" --gtest_filter="$2" --gtest_output="xml:$work/xml" >"$1.log" 2>&1 </dev/null
  code=$?
  if [ -s "$work/xml" ]; then
    awk -f "$tools/text.awk" -f "$tools/failures.awk" "$work/xml"
    return
  fi
  during=$(sed -n 's/^\[ RUN *\] //p' "$1.log" | tail -n 1)
  test=$(echo "${during#*/}" | sed 's|/.*||')
  case $during in */*.*) ;; *) test=${during%%/*} ;; esac
  case $code in
    139) how="at an address that is not the program's (a null pointer, or an index far outside)" ;;
    134) how="by abort()" ;;
    *) how="with exit code $code" ;;
  esac
  printf '%s\tfailed\t%s\n' "${3:-${test:-${1##*/}}}" \
    "$(grep -m 1 'exercise [0-9.]* is open' "$1.log" || echo "the program ended early${during:+, in $during}, $how")"
}
verdict() {
  awk -f "$tools/verdict.awk" -v lesson="$lesson" -v page="$page" -v records="$work/records" -v part="$1" \
    as=exercises "$work/exercises" as=tests "$work/tests" as=places "$work/places" \
    as=ids "$work/ids" as=results "$work/results"
}

status=0
for id in $(cat "$work/ids"); do echo "$id is judged by" $(tests_of "$id"); done
make counted GOALS="$(sed 's|^|build/tests/|' "$work/ids" | paste -sd' ' -)" || exit 1
for id in $(cat "$work/ids"); do
  run "build/tests/$id" "$(tests_of "$id" | sed 's|.*|&:*/&/*|' | paste -sd: -)" "$(tests_of "$id" | head -n 1)"
done >"$work/results"
: >"$work/records"
verdict exercises || status=1
while IFS='	' read -r id state detail; do
  sh "$tools/progress.sh" record "$id" "$state" "$detail"
done <"$work/records"
[ "$1" = "$lesson" ] || exit $status

echo "the other tests of lesson $lesson:"
make counted GOALS="build/tests/$lesson" || exit 1
skip=$(while read -r id; do tests_of "$id"; done <"$work/ids" | sed 's|.*|&:*/&/*|' | paste -sd: -)
run "build/tests/$lesson" "*L${lesson}_*${skip:+-$skip}" >"$work/results"
verdict others || status=1
exit $status
