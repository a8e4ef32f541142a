#!/bin/sh
# feedback_selftest.sh: what a student is told. In a small tree of two lessons, whose test programs are scripts that
# write reports as GoogleTest does, plants each thing that can happen, and looks for the line that says it.
tools=$(cd "$(dirname "$0")/.." && pwd)
base=$(mktemp -d) && trap 'rm -rf "$base"' EXIT
failures=0

fail() { echo "self-test of feedback: $*"; failures=$((failures + 1)); }

# A test program: runs the tests of the file build/tests/plan that the filter asks for, one a line, as "NAME RESULT":
# Devices/L01_A.X/cpu ok, or what GoogleTest says of the failure; "dies CODE WORDS…" ends the program.
test_program() {
  cat <<'H'
#!/bin/sh
filter=${1#--gtest_filter=} xml=${2#--gtest_output=xml:}
printf '<testsuites tests="1" failures="0">\n' >"$xml.part"
while read -r name result; do
  runs=0
  set -f; IFS=:
  for pattern in ${filter%%-*}; do case $name in $pattern) runs=1 ;; esac; done
  case $filter in *-*) for pattern in ${filter#*-}; do case $name in $pattern) runs=0 ;; esac; done ;; esac
  unset IFS
  [ $runs = 1 ] || continue
  suite=${name%%.*} test=${name#*.}
  how=completed; [ "$result" != skipped ] || how=skipped
  case $result in dies\ *) echo "${result#dies * }"; rm "$xml.part"; set -- $result; exit "$2" ;; esac
  printf '<testcase name="%s" status="run" result="%s" time="0" classname="%s"' "$test" $how "$suite" >>"$xml.part"
  case $result in
    ok | skipped) echo ' />' ;;
    *) failed=1; printf '>\n<failure message="a_test.cpp:1&#x0A;%s" type=""></failure>\n</testcase>\n' "$result" ;;
  esac >>"$xml.part"
done <build/tests/plan
[ -z "$failed" ] || sed -i 's/failures="0"/failures="1"/' "$xml.part"
mv "$xml.part" "$xml"
[ -z "$failed" ]
H
}
says_open() { printf 'C++ exception with description \\&quot;exercise %s is open: do it\\&quot; thrown in the test.' "$1"; }
test_of() { printf 'TEST_P(%s, %s) {\n  RecordProperty("exercise", "%s");\n}\n' "$1" "$2" "$3"; }

# Lesson 01 has 01.1 and 01.2 to fill in, 01.3 to predict, and a bug 01.4; lesson 02 has 02.1. All of it passes.
fresh() {
  rm -rf "$base/tree" && mkdir -p "$base/tree/build/tests" "$base/tree/tests" "$base/tree/src" "$base/tree/kernels" &&
    cd "$base/tree" || exit 1
  mkdir -p lessons/01_a lessons/02_b && touch lessons/01_a/main.cpp lessons/02_b/main.cpp
  printf -- '- 01.%s\n' '1 *fill in*, 10 points: a' '2 *fill in*, 10 points: b' '3 *predict the number*, 5 points: c' \
    '4 *find the bug*: d' >lessons/01_a/README.md
  echo '- 02.1 *fill in*, 10 points: e' >lessons/02_b/README.md
  printf '**01.1** 1. Think of x at -1. 2. Take\nf(2.\n3) of it.\n3. Add both.\n\n**01.2** 1. one\n' >lessons/01_a/hints.md
  printf 'int f() {\n  // EXERCISE 01.1: see lessons/01_a/README.md\n  todo("01.1", "do it");\n}\n' >src/open.cpp
  printf 'int g() {\n  // EXERCISE 01.2: see lessons/01_a/README.md\n  return 7;\n}\n' >src/filled.cpp
  { test_of L01_A X 01.1; test_of L01_A Y 01.2; test_of L01_A Bug 01.4; } >tests/a_test.cpp
  test_of L02_A Z 02.1 >tests/b_test.cpp
  echo "int helper;" >tests/helper.h
  for program in 01 01.1 01.2 01.4 a_test b_test; do test_program >build/tests/$program; done
  chmod +x build/tests/*
  printf 'Devices/L01_A.%s/cpu ok\n' X Y Bug Other >build/tests/plan
  echo 'L02_A.Z ok' >>build/tests/plan
  echo 'counted: ;' >Makefile
}
plan() { sed -i "s|^\(.*L01_A.$1/cpu\) .*|\1 $2|" build/tests/plan; }  # TEST RESULT

judge() { sh "$tools/course/test.sh" "${1:-01}" >"$base/report" 2>&1; }
screen() { sh "$tools/course/progress.sh" show >"$base/report" 2>&1; }
hint() { sh "$tools/course/hint.sh" "$1" >"$base/report" 2>&1; }
record() { sh "$tools/course/progress.sh" record "$@" 2>"$base/report"; }
# The report has these lines, or parts of lines.
says() { for line; do grep -qF -- "$line" "$base/report" || { fail "did not say: $line"; cat "$base/report"; }; done; }
silent() { ! grep -qF -- "$1" "$base/report" || { fail "said: $1"; cat "$base/report"; }; }
ends_with() { [ "$(tail -1 "$base/report")" = "$1" ] || { fail "does not end with: $1"; cat "$base/report"; }; }

# ---- make test-NN -------------------------------------------------------------------------------------
fresh
judge || fail "all pass, and the exit code is not 0"
says "01.1 is judged by L01_A.X" "lesson 01: 2 of 2 exercises passed (01.1, 01.2)"
ends_with "2 passed"
plan X "$(says_open 01.1)"
plan Other "Value of: code\\&#x0A;  Actual: 1\\&#x0A;Expected: 0\\&#x0A;$(says_open 01.1)"
judge || fail "an exercise is open, nothing fails, and the exit code is not 0"
says "01.1 is open: src/open.cpp:2" "lesson 01: 1 of 2 exercises passed (01.2), 1 open (01.1)"
ends_with "1 passed, 1 open (they wait for exercises)"

fresh
plan Y 'Value of: r.ok\&#x0A;  Actual: false\&#x0A;Expected: true\&#x0A;linear: element 3: expected \&lt;1\&gt;, got 2'
judge && fail "an exercise fails, and the exit code is 0"
says "01.2 FAILS: cpu: linear: element 3: expected <1>, got 2; your lines: src/filled.cpp:2" \
  "lesson 01: 1 of 2 exercises passed (01.1), 1 FAILS (01.2)"
ends_with "2 passed"
plan Y 'Expected equality of these values:\&#x0A;  y[0]\&#x0A;    Which is: 4\&#x0A;  kSix\&#x0A;    Which is: 6\&#x0A;the sum'
judge; says "01.2 FAILS: cpu: y[0] is 4, expected kSix = 6 (the sum); your lines: src/filled.cpp:2"
plan Y 'The difference between y and z is 2, which exceeds e, where\&#x0A;y evaluates to 1,\&#x0A;z evaluates to 3, and\&#x0A;e.'
judge; says "01.2 FAILS: cpu: y is 1, expected z = 3; your lines"
plan Y 'Expected: (y) \&lt;= (z), actual: 3 vs 1\&#x0A;of the sum'
judge; says "01.2 FAILS: cpu: Expected: (y) <= (z), actual: 3 vs 1 (of the sum); your lines"
sed -i '/EXERCISE/d' src/filled.cpp
judge; says "; your lines: see lessons/01_a/README.md"
plan Y "$(says_open 01.1)"
judge; says "01.2 is open: its test needs 01.1, which is open; your lines: see"
printf '// BEGIN SOLUTION 01.2\n// STUB: todo("01.2", "do it");\n// END SOLUTION 01.2\n' >>src/filled.cpp
judge; says "01.2 is open: its test needs 01.1, which is open; your lines: src/filled.cpp:4"
echo 'todo("01.2", "do it");' >>src/filled.cpp
judge; says "01.2 is open: src/filled.cpp:4"
plan Y skipped
judge; says "01.2 FAILS: its test L01_A.Y did not run"

fresh  # a program that ends early: every exercise still has its own result
plan X 'dies 1 exercise 01.1 is open: do it'
judge
says "01.1 is open: src/open.cpp:2" "lesson 01: 1 of 2 exercises passed (01.2), 1 open (01.1)"
ends_with "2 passed"
plan X ok; plan Y 'dies 139'
judge && fail "an exercise crashes, and the exit code is 0"
says "01.2 FAILS: the program ended early, at an address that is not the program's (a null pointer, or an index far outside); your lines: src/filled.cpp:2"
says "lesson 01: 1 of 2 exercises passed (01.1), 1 FAILS (01.2)"
plan Y ok; plan Other 'dies 1 exercise 01.1 is open: do it'
judge || fail "a test waits for an exercise, and the exit code is not 0"
ends_with "0 passed, 1 open (they wait for exercises)"
plan Other 'dies 1 no reason'
judge && fail "the other tests crash, and the exit code is 0"
says "01 FAILS: the program ended early, with exit code 1"

fresh
plan Bug wrong
judge && fail "a test fails, and the exit code is 0"
says "lesson 01: 2 of 2 exercises passed (01.1, 01.2)" "L01_A.Bug (01.4) FAILS: cpu: wrong"
ends_with "1 passed, 1 FAILS"
plan Other wrong
judge
says "L01_A.Bug (01.4) FAILS: cpu: wrong" "L01_A.Other FAILS: cpu: wrong"
ends_with "0 passed, 2 FAIL"
judge 01.4 && fail "the bug is there, and the exit code is 0"
says "01.4 is judged by L01_A.Bug"
ends_with "lesson 01: 0 of 1 exercise passed, 1 FAILS (01.4)"
judge 01.1 || fail "01.1 passes, and the exit code is not 0"
ends_with "lesson 01: 1 of 1 exercise passed (01.1)"
judge 01.3 && fail "there is nothing to test of 01.3"; says "test: exercise 01.3 is judged by make predict-01"
judge 01.9 && fail "there is no 01.9"; says "test: no test judges an exercise 01.9; those of lesson 01 are 01.1 01.2 01.4"

# ---- make test ----------------------------------------------------------------------------------------
plan Other ok
sh "$tools/tools/run_tests.sh" build/tests/a_test >"$base/report" 2>&1 && fail "make test: exit code 0"
ends_with "4 passed, 1 failed"

# ---- make progress ------------------------------------------------------------------------------------
fresh
plan X "$(says_open 01.1)"
judge
screen
says "01.1 open       01.2 passed     01.3 not tried   10 of 25 points" "02.1 not tried"
silent "01.4"
silent "$(printf '\033')"
ends_with "10 of 35 points"
record 01.2 failed "$(printf 'a\tb\nc')"; record 01.3 passed 12; record 02.1 passed
screen
says "01.2 failed     01.3 passed" "01.2 fails: a b c"
ends_with "15 of 35 points"
: >lessons/01_a/answers.txt; screen
says "01.2 failed     01.3 stale" "02.1 passed"
ends_with "10 of 35 points; stale: the sources changed since; make test-NN, or predict-NN, judges anew"
record 01.3 passed 12; screen; says "01.3 passed"
rm lessons/01_a/answers.txt; screen; says "01.3 stale"; record 01.3 passed; screen; ends_with "15 of 35 points"
echo "int y;" >>lessons/02_b/main.cpp; screen; says "02.1 stale" "01.3 passed"
echo "int y;" >>tests/a_test.cpp; screen; says "01.1 stale      01.2 stale      01.3 stale"
record 01.1 passed; record 02.1 passed; screen; says "01.1 passed" "02.1 passed"
echo "int y;" >>src/filled.cpp; screen; says "01.1 stale" "02.1 stale"
record 01.1 passed; echo "int y;" >>tests/helper.h; screen; says "01.1 stale"
printf 'counted:\n\t@echo "int z;" >>src/filled.cpp\n' >Makefile && judge
screen; says "01.1 stale      01.2 stale"  # the sources changed while they were judged
record 01.9 passed && fail "an unknown exercise is recorded"; says "no lesson's page has an exercise '01.9'"
record 01.1 good && fail "an unknown state is recorded"; says "a state is passed, failed or open, not 'good'"
rm build/progress.tsv
for k in 1 2 3 4 5 6 7 8; do record 01.1 passed $k & record 02.1 passed $k & done
wait
[ "$(wc -l <build/progress.tsv)" = 16 ] || fail "of 16 results at once, some are lost"

# ---- make hint-NN.k -----------------------------------------------------------------------------------
fresh
hint 01.1; says "hint 1 of 3 for 01.1: Think of x at -1." "2 more: make hint-01.1"; silent "Take"
hint 01.1; says "hint 2 of 3 for 01.1: Take f(2. 3) of it."
hint 01.1; says "hint 3 of 3 for 01.1: Add both." "that was the last one"
hint 01.1; says "no more hints for 01.1" "hint 1 of 3" "hint 2 of 3" "hint 3 of 3"
hint 01.9 && fail "a hint for 01.9"; says "lesson 01 has no exercise 01.9; it has 01.1 01.2 01.3 01.4"
hint 1.1 && fail "a hint for 1.1"; says "there is no exercise 1.1; write make hint-NN.k with one of 01.1 01.2"
hint 02.1 && fail "a hint where there are none"; says "there are no hints for exercise 02.1; its page is lessons/02_b/README.md"

if [ $failures -eq 0 ]; then echo "self-test of feedback: everything is said"; else exit 1; fi
