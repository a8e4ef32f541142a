#!/bin/sh
# run_tests.sh PROGRAM...: runs the test programs, as many at once as there are cores, each with one thread. Counts
# from GoogleTest's XML reports. LEAVE_OUT: patterns of tests that are not run. A program that crashes counts as a failed
# test, and so does a lesson without a test. The last line is "N passed, N failed"; the exit code is 0 only if a test
# passed and none failed.
export filter="*${LEAVE_OUT:+-$LEAVE_OUT}"
at_once=$(nproc)  # before OMP_NUM_THREADS is set, which nproc obeys
# The folder for the files of tests, a separate one per run, because several runs may overlap.
TEST_TMPDIR=$(mktemp -d) || exit 1
export TEST_TMPDIR OMP_NUM_THREADS=1
trap 'rm -rf "$TEST_TMPDIR"' EXIT
trap 'exit 1' INT TERM

# The numbers of one XML report, as shell assignments. GoogleTest writes one <testcase …> per line;
# <testsuites …> has the totals.
export count='
  /<testsuites / { match($0, / failures="[0-9]+"/); f = substr($0, RSTART + 11, RLENGTH - 12) }
  /<testcase / && /status="notrun"/ { d++ }
  /<testcase / && /status="run"/ { if (/result="skipped"/) s++; else r++ }
  END { printf "p=%d f=%d s=%d d=%d", r - f, f, s, d }'

# The lines of a log about failures, without those of passed tests.
export only_failures='
  /^\[ RUN /  { run = $0; next }
  /^\[ +OK \]/ { run = ""; next }
  { if (run != "") print run; run = ""; print }
  END { if (run != "") print run }'

# Runs one program; prints the result, and keeps "passed failed skipped disabled" in PROGRAM.counts.
run_one='
  program=$1 xml=$1.xml log=$1.log
  rm -f "$xml"
  start=$(date +%s)
  mkdir "$TEST_TMPDIR/${1##*/}" && export TEST_TMPDIR="$TEST_TMPDIR/${1##*/}"
  "$program" --gtest_filter="$filter" --gtest_output="xml:$xml" >"$log" 2>&1
  status=$?
  p=0 f=0 s=0 d=0
  [ -s "$xml" ] && eval "$(awk "$count" "$xml")"
  note=
  # A failure that no test reports: a crash before the report was written, or a bad exit code after it.
  if [ $status -ne 0 ] && [ $f -eq 0 ]; then
    f=1 note=", ended with exit code $status"
  elif [ ! -s "$xml" ]; then
    f=1 note=", wrote no report"
  fi
  [ $f -eq 0 ] || awk "$only_failures" "$log"
  took=$(($(date +%s) - start))
  [ $((p + f + s + d)) -eq 0 ] ||
    echo "${program##*/}: $p passed, $f failed, $s skipped, $d disabled$note ($took s)"
  echo $p $f $s $d >"$program.counts"'
printf '%s\n' "$@" | xargs -P "$at_once" -I '{}' sh -c "$run_one" - '{}'

passed=0 failed=0 skipped=0 disabled=0 suites=
for program; do
  read -r p f s d <"$program.counts"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s)) disabled=$((disabled + d))
  [ ! -s "$program.xml" ] ||
    suites="$suites $(sed -n '/status="run" result="completed"/s/.*classname="\([^"]*\)".*/\1/p' "$program.xml")"
done
for nn in $(ls -d lessons/[0-9][0-9]_* 2>/dev/null | sed 's|lessons/\(..\)_.*|\1|'); do
  case $suites in
    *L${nn}_*) ;;
    *)
      echo "lesson $nn has no test: give one a suite name that begins with L${nn}_"
      failed=$((failed + 1))
      ;;
  esac
done
[ $((skipped + disabled)) -eq 0 ] || echo "not run: $skipped skipped, $disabled disabled"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
