#!/bin/sh
# check_course_selftest.sh: plants one fault of each kind in a small tree and sees that check_course.sh names it.
tools=$(cd "$(dirname "$0")" && pwd)
. "$tools/small_tree.sh"
failures=0

# expect TEXT: check_course.sh of lesson 01 fails and prints TEXT. Then the tree is made anew.
expect() {
  git add -A
  if sh "$tools/check_course.sh" 01 >"$base/report" 2>&1 || [ -e tests/course/checked.txt ] || ! grep -qF -- "$1" "$base/report"; then
    echo "self-test of check-course: did not find: $1"
    cat "$base/report"
    failures=$((failures + 1))
  fi
  fresh
}

bug() {  # SED: exercise 01.3 is a bug, which SED makes of src/c.cpp
  sed -i 's/f2(int);/f2(int), f3(int);/' src/t.h
  printf '#include "src/t.h"\nint f3(int x) {\n  return x;\n}\n' >src/c.cpp
  test_of 01.3 'f3(1) == 1' >tests/c_test.cpp
  sed "$1" src/c.cpp >"$base/bugged"
  diff -u --label a/src/c.cpp --label b/src/c.cpp src/c.cpp "$base/bugged" >lessons/01_a/bug_01.3.patch
}

fresh
bug 's/return x/return -x/'
git add -A
sh "$tools/check_course.sh" 01 >"$base/report" 2>&1 ||
  { echo "self-test of check-course: a tree without a fault fails:"; cat "$base/report"; failures=1; }
# What was found good is kept, until something that it depends on changes.
changed() {  # WHAT LESSONS
  now=$(sh "$tools/checked.sh" changed | paste -sd' ' -)
  [ "$now" = "$2" ] || { echo "self-test of check-course: $1: changed are '$now', not '$2'"; failures=1; }
}
cp -r . "$base/good"
edit() {  # FILE: then it is as before
  cd "$base/good" && echo "$2" >>"$1" && changed "$1" "$3" && rm -r "$base/good" && cp -r "$base/tree" "$base/good"
}
changed "lesson 01 was checked" 02
edit src/b.cpp "int z;" "01 02"
edit src/c.cpp "int z;" "01 02"
edit src/t.h "int z;" 02
edit tests/b_test.cpp "int z;" "01 02"
edit lessons/01_a/p.h "int z;" "01 02"
edit lessons/01_a/hints.md "1. d" "01 02"
edit lessons/01_a/bug_01.3.patch "" "01 02"
edit lessons/01_a/README.md "- 01.4 *x*" "01 02"
edit lessons/01_a/README.md "Measured: 7." 02
edit lessons/02_b/main.cpp "int z;" 02
fresh
echo "write the_sum_1; const int the_sum_1 = x + 1;" >>lessons/01_a/hints.md
                                            expect "leak: lessons/01_a/hints.md"
echo "// END SOLUTION 01.2" >>src/a.cpp;    expect "src/a.cpp:9: END SOLUTION 01.2 does not close anything"
test_of 01.2 '1 == 1' >tests/b_test.cpp;    expect "exercise 01.2 is open, and its test passes"
test_of 01.2 'f1(1) == 2' >tests/b_test.cpp; expect "exercise 01.2 is open, and its test passes"
{ test_of 01.2 'f1(1) == 2' >tests/a_test.cpp; test_of 01.1 'f2(1) == 3' >tests/b_test.cpp; }
                                            expect "exercise 01.1 is open, and its test fails without naming it"
test_of 01.1 'f1(1) == 2 && f2(1) == 3' >tests/a_test.cpp
                                            expect "exercise 01.1 is solved, and its test does not pass while these are open: 01.2"
test_of 01.2 'f2(1) == 4' >tests/b_test.cpp; expect "exercise 01.2 is solved, and its test does not pass"
echo '#include "lessons/02_b/p.h"' >>src/t.h; expect "lesson 01, open: 01.1 01.2: the tree does not build"
test_of 01.4 '!fopen("lessons/02_b/p.h", "r") ? 0 : 1' >tests/c_test.cpp; printf -- '- 01.4 *x*\n' >>lessons/01_a/README.md
                                            expect "make test-01 fails where the later lessons are not there"
bug 's/return x/return x * 1/';             expect "exercise 01.3: with its bug, its test passes"
bug 's/return x/return y/';                 expect "exercise 01.3: with its bug the tree does not build"
cat src/b.cpp >>src/t.h; rm src/b.cpp;      expect "exercise 01.2: is in a header"
sed -i 's/^- 01.2.*//' lessons/01_a/README.md; expect "exercise 01.2 is in the sources and not on the page"
sed -i 's/3\. c//' lessons/01_a/hints.md;   expect "exercise 01.2 has not the three hints"
sed -i 's/predict/predict the number/' lessons/01_a/README.md
                                            expect "exercise 01.3: tests/course/predict_01.cpp does not name it"
sed -i 's/predict/make it faster/' lessons/01_a/README.md
                                            expect "exercise 01.3: tests/course/faster_01.cpp does not name it"
sed -i 's/\*$/*, 7 points:/' lessons/01_a/README.md
                                            expect "no row '| 01 | minutes | 21 |', the points of lessons/01_a/README.md"
rm tests/b_test.cpp;                        expect 'exercise 01.2: no test has RecordProperty("exercise", "01.2")'
test_of 01.9 'f2(f1(1)) == 4' >tests/c_test.cpp; expect "records exercise 01.9, which is not on"

if [ $failures -eq 0 ]; then echo "self-test of check-course: every planted fault was found"; else exit 1; fi
