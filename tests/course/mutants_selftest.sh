#!/bin/sh
# mutants_selftest.sh: in a small tree, mutants of every fate: killed, alive, too slow, one that does not apply, one
# that does not compile; and bug.sh, which puts one in and takes it out.
tools=$(cd "$(dirname "$0")" && pwd)
. "$tools/small_tree.sh"
export LIMIT=1
failures=0

fail() { echo "self-test of mutants: $*"; cat "$base/report"; failures=$((failures + 1)); }

# mutant NAME OLD NEW: in src/b.cpp, NEW in place of the line OLD.
mutant() {
  mkdir -p tests/mutants
  printf '%s: kind: what is wrong\nsrc/b.cpp\n-%s\n+%s\n\n' "$1" "$2" "$3" >>tests/mutants/01.txt
}
sum='  const int the_sum_2 = x + 2;' result='  return the_sum_2;'
# says STATUS TEXT...: mutants.sh of lesson 01 ends with STATUS and prints every TEXT.
says() {
  sh "$tools/mutants.sh" 01 >"$base/report" 2>&1
  [ $? -eq "$1" ] || fail "the exit code is not $1:"
  shift
  for text; do grep -qF -- "$text" "$base/report" || fail "did not find: $text"; done
}
# bug STATUS TEXT ARGUMENT...: the same of bug.sh.
bug() {
  sh "$tools/bug.sh" 01 $3 >"$base/report" 2>&1
  [ $? -eq "$1" ] && grep -qF -- "$2" "$base/report" || fail "bug.sh $3: not $1, $2:"
}

fresh
mutant 01.2_three "$sum" '  const int the_sum_2 = x + 3;'
mutant 01_for_ever "$result" '  for (volatile int i = 0; i < 1;) {} return the_sum_2;'
mutant 01_crashes "$result" '  std::abort();'
says 0 "01.2_three: killed" "01_for_ever: killed by its end, stopped after 1 s" "01_crashes: killed" "lesson 01: 3 of 3 mutants killed"
[ -z "$(git status --porcelain -- src)" ] || fail "the tree itself was changed:"
sh "$tools/check_course.sh" 01 >"$base/report" 2>&1 || fail "check_course.sh does not pass:"
mutant 01_alive 'int f2(int x) {' 'int f2(const int x) {'
says 1 "01_alive: survives" "lesson 01: 3 of 4 mutants killed" "01_alive survives: no reason" "the least is 95 %"
sed -i 's/^01_alive: .*/&\nsurvives: it is the same/' tests/mutants/01.txt
says 1 "01_alive survives: it is the same" "the least is 95 %"
mutant 01.2_alive 'int f2(int x) {' 'int f2(const int x) {'
sh "$tools/check_course.sh" 01 >"$base/report" 2>&1 && fail "check_course.sh passes:"
grep -q "01.2_alive: survives" "$base/report" || fail "check_course.sh does not name the mutant:"
rm tests/mutants/*
mutant 01_wrong_syntax "$result" '  retrun the_sum_2;'
mutant 01_elsewhere '  const int another = x + 2;' '  const int the_sum_2 = x + 3;'
says 1 "01_wrong_syntax: error does not compile" "01_elsewhere: error does not apply: its old text does not stand in src/b.cpp" "2 mutants could not be judged"
printf '#if 0\n%s\n#endif\n' "$sum" >>src/b.cpp
mutant 01_which "$sum" '  const int the_sum_2 = x + 3;'
says 1 "01_which: error does not apply: its old text stands more than once in src/b.cpp"
git checkout -q src/b.cpp && rm tests/mutants/*
mutant 01_three "$sum" '  const int the_sum_2 = x + 3;'
says 0 "lesson 01: 1 of 1 mutants killed"
# Several changes, lines that stay, lines that only come or go.
printf '%s: kind: two\nsrc/b.cpp\n-%s\n+  const int y = 3;\n+  const int the_sum_2 = x + y;\nsrc/a.cpp\n %s\n-%s\n' \
  01_two "$sum" '  const int the_sum_1 = x + 1;' '  return the_sum_1;' >>tests/mutants/01.txt
says 0 "01_two: killed" "lesson 01: 2 of 2 mutants killed"
test_of 01.1 'f1(1) == 5' >tests/a_test.cpp
says 1 "fails without any mutant"

fresh
mutant 01_three "$sum" '  const int the_sum_2 = x + 3;'
git add -A && git -c user.name=n -c user.email=e@example.org commit -qm two
bug 2 "no bug was put in" undo
bug 0 "a bug is in"
grep -q 'x + 3' src/b.cpp || fail "the bug is not in:"
bug 2 "a bug is in already"
bug 0 "the bug is out" undo
[ -z "$(git status --porcelain -- src)" ] || fail "the bug is not out:"
echo >>src/b.cpp
bug 2 "has changes of yours"
git checkout -q src/b.cpp
SEED=1x bug 2 "is not a number"
sed -i 's/^01_three: .*/&\nsurvives: it does/' tests/mutants/01.txt
bug 2 "there is no bug for lesson 01"

if [ $failures -eq 0 ]; then echo "self-test of mutants: everything held"; else exit 1; fi
