#!/bin/sh
# verdict.sh NN PROGRAM...: after run_tests.sh has run these test programs, says of each exercise of lesson NN whether
# it passed, fails (with what) or is open, and keeps that for `make progress` (HASH: of the sources before the build).
tools=$(cd "$(dirname "$0")" && pwd)
lesson=$1
shift
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
page=$(ls lessons/"$lesson"_*/README.md)

awk -f "$tools/pages.awk" "$page" >"$work/exercises"
awk -f "$tools/tests.awk" $(find tests -name '*_test.cpp' | sort) | grep "^$lesson\." >"$work/tests"
find kernels src lessons -type f | grep -E '\.(h|cpp|cu|inc)$' | LC_ALL=C sort |
  xargs grep -nE "(BEGIN SOLUTION |EXERCISE |todo\(\")$lesson\.[0-9]" /dev/null >"$work/places"

# An exercise that is open in a loop of several threads, or a crash, ends a whole program without a report. That
# counts as one failed test; and the tests of the exercises run alone, so that each has its own result.
why() {
  grep -m 1 'exercise [0-9.]* is open' "$1" && return
  during=$(sed -n 's/^\[ RUN *\] //p' "$1" | tail -n 1)
  case $2 in
  "") how= ;;
  139) how="at an address that is not the program's (a null pointer, or an index far outside)" ;;
  134) how="by abort()" ;;
  *) how="with exit code $2" ;;
  esac
  echo "the program ended early${during:+, in $during}${how:+, $how}"
}
run_alone() {
  printf '%s\tfailed\t%s\n' "${1##*tests/}" "$(why "$1.log")"
  while read -r id program test; do
    [ "$program" = "${1##*tests/}" ] || continue
    rm -f "$work/xml"
    "$1" --gtest_filter="$test:*/$test/*" --gtest_output="xml:$work/xml" >"$work/log" 2>&1 </dev/null
    code=$?
    if [ -s "$work/xml" ]; then
      awk -f "$tools/text.awk" -f "$tools/failures.awk" "$work/xml"
    else
      printf '%s\tfailed\t%s\n' "$test" "$(why "$work/log" $code)"
    fi
  done <"$work/tests"
}
for program; do
  if [ -s "$program.xml" ]; then awk -f "$tools/text.awk" -f "$tools/failures.awk" "$program.xml"; else run_alone "$program"; fi
done >"$work/results"

: >"$work/records"
awk -f "$tools/verdict.awk" -v lesson="$lesson" -v page="$page" -v records="$work/records" \
  as=exercises "$work/exercises" as=tests "$work/tests" as=places "$work/places" as=results "$work/results"
while IFS='	' read -r id state detail; do
  sh "$tools/progress.sh" record "$id" "$state" "$detail"
done <"$work/records"
