#!/bin/sh
# student_selftest.sh: hands out a small tree of three lessons with student.sh and looks at what is in it; then
# plants a leak of each kind, and a wrong call of each kind, and sees that it is refused.
tools=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
failures=0

fail() { echo "self-test of student: $*"; failures=$((failures + 1)); }

exercise() {  # ID STUB: a function with an exercise
  printf 'int f%s() {\n  // BEGIN SOLUTION %s\n' "${1#*.}" "$1"
  printf '  int total_of_%s = 40 + 2;\n  return total_of_%s;\n' "${1%.*}_${1#*.}" "${1%.*}_${1#*.}"
  printf '  // STUB: %s\n  // END SOLUTION %s\n}\n' "$2" "$1"
}

# A tree of three lessons, whose exercises are 01.1, 02.1, 02.2 and 03.1, as one commit.
fresh() {
  rm -rf "$work/source" "$work/out"
  mkdir -p "$work/source/src/core" "$work/source/tests/course" "$work/source/tests/lessons" && cd "$work/source" || exit 1
  for lesson in 01_a 02_b 03_c; do
    mkdir -p lessons/$lesson && echo "int main() {}" >lessons/$lesson/main.cpp
    echo "# a page" | tee lessons/$lesson/README.md >lessons/$lesson/hints.md
    echo "#pragma once" >lessons/$lesson/part.h
    echo "| [$lesson]($lesson/README.md) | x |" >>lessons/README.md
    echo "| [$lesson](lessons/$lesson/README.md) | x |" >>README.md
    printf 'make lesson-%s    a run of it\n    that goes on\n' "${lesson%_*}" >>README.md
  done
  { exercise 01.1 'todo("01.1", "x");'; exercise 03.1 'todo("03.1", "x");'; } >src/core/c.cpp
  { exercise 02.1 'todo("02.1", "x", a, b);'; exercise 02.2 'todo("02.2", "x"); return 0;'; } >src/core/d.cpp
  echo 'TEST(L01_A, X) {}' >tests/early_test.cpp
  { cat tests/early_test.cpp; echo 'TEST(L03_A, X) {}'; } >tests/mixed_test.cpp
  echo 'TEST_F(L03_B, X) {}' >tests/late_test.cpp
  printf '#include "lessons/03_c/part.h"\nTEST(L02_B, X) {}\n' >tests/reaching_test.cpp
  echo 'int x;' | tee tests/lessons/03_testing.h tests/course/predict_02.cpp >tests/course/predict_03.cpp
  sed 's/return total_of_03_1;/return 7;/; s/int f1/long f1/' src/core/c.cpp >bugged
  diff -u --label a/src/core/c.cpp --label b/src/core/c.cpp src/core/c.cpp bugged >lessons/02_b/bug_02.3.patch
  cp lessons/02_b/bug_02.3.patch lessons/03_c/bug_03.2.patch
  mkdir tests/mutants && change='scale: 7 is wrong\nsrc/core/c.cpp\n-  return total_of_01_1;\n+  return 7;\n\n'
  printf "01.1_seven: $change" >tests/mutants/01.txt
  change='type: it is long\nsrc/core/d.cpp\n-int f2() {\n+long f2() {\n\n'
  printf "02_first: ${change}02.1_long: ${change}02_last: $change" >tests/mutants/02.txt
  printf "03_long: $change" >tests/mutants/03.txt
  rm bugged
  git init -q && git add -A && GIT_COMMITTER_DATE='2026-01-02T03:04:05+0000' git -c user.name=n \
    -c user.email=e@example.org commit -q -m one && echo untracked | tee left_behind.txt >lessons/01_a/answers.txt
}

# there FILE... / gone FILE...: in the tree that was handed out.
there() { for file; do [ -e "$work/out/$file" ] || fail "$file is missing"; done; }
gone() { for file; do [ ! -e "$work/out/$file" ] || fail "$file is there"; done; }
says() { grep -qF -- "$2" "$work/out/$1" || fail "$1 does not say: $2"; }
silent() { ! grep -rqF --exclude-dir=.git -- "$1" "$work/out" || fail "somewhere it says: $1"; }
hand_out() { sh "$tools/student.sh" "$1" "$work/out" >"$work/report" 2>&1 || { fail "lesson $1:"; cat "$work/report"; }; }

# refused LESSON OUT SENTENCE: student.sh ends with 2, says so, and leaves nothing. Then the tree is made anew.
refused() {
  sh "$tools/student.sh" "$1" "$2" >"$work/report" 2>&1
  status=$?
  [ $status -eq 2 ] && grep -qF -- "$3" "$work/report" || { fail "not refused ($status): $3"; cat "$work/report"; }
  ls -A "$work" | grep -vxE 'source|report|full|file' && fail "that was left behind"
  fresh
}
commit() { git -c user.name=n -c user.email=e@example.org commit -qam two; }

fresh
hand_out 02
there tests/mutants/01.txt README.md tests/course/predict_02.cpp lessons/01_a/part.h lessons/02_b/hints.md
there tests/early_test.cpp tests/mixed_test.cpp
gone tests/mutants/03.txt lessons/03_c tests/late_test.cpp tests/reaching_test.cpp
gone tests/lessons/03_testing.h left_behind.txt tests/course/predict_03.cpp lessons/01_a/answers.txt
says src/core/c.cpp "  return total_of_01_1;"
says src/core/c.cpp "  return total_of_03_1;"
says src/core/d.cpp "  // EXERCISE 02.1: see lessons/02_b/README.md"
says src/core/d.cpp '  todo("02.1", "x", a, b);'
says src/core/d.cpp "  return 0;"
says lessons/README.md "02_b"
says README.md "make lesson-02"
says lessons/02_b/bug_02.3.patch "-int f1() {"
says tests/mutants/01.txt "01.1_seven: scale: 7 is wrong"
says tests/mutants/02.txt "02_last: type"
[ "$(grep -c . "$work/out/tests/mutants/02.txt")" = 8 ] || fail "not only the mutant of what is open was taken out"
for word in 02.1_long total_of_02 SOLUTION STUB 'EXERCISE 01' 'EXERCISE 03' 03_c lesson-03; do silent "$word"; done
(cd "$work/out" && git apply --check lessons/02_b/bug_02.3.patch) || fail "the bug cannot be put in"
(cd "$work/out" && awk -v name=01.1_seven -v only=look -f "$tools/mutant.awk" tests/mutants/01.txt >"$work/report") ||
  fail "the mutant cannot be put in"
[ "$(git -C "$work/out" rev-list --count HEAD)" = 1 ] || fail "there is a history"
[ -z "$(git -C "$work/out" status --porcelain)" ] || fail "the commit is not the tree"
first=$(git -C "$work/out" rev-parse HEAD)
rm -rf "$work/out"
mkdir "$work/out"
hand_out 02
[ "$first" = "$(git -C "$work/out" rev-parse HEAD)" ] || fail "two runs gave two commits"
rm -rf "$work/out"
sh "$tools/student.sh" 02 build/inside >"$work/report" && mv build/inside "$work/out"
[ "$first" = "$(git -C "$work/out" rev-parse HEAD)" ] || fail "a folder in the clone gave another commit"
rm -rf "$work/out"
hand_out all
there lessons/03_c tests/late_test.cpp
for id in 01.1 02.1 02.2 03.1; do grep -rqF "EXERCISE $id" "$work/out/src" || fail "$id is not open"; done
silent total_of_

fresh
mkdir "$work/full" && touch "$work/full/x" && echo x >"$work/file"
refused 04 "$work/out" "there is no lesson 04; the lessons are 01 02 03"
refused 2 "$work/out" "there is no lesson 2"
refused "" "$work/out" "LESSON is missing"
refused 02 "" "OUT is missing"
refused 02 "$work/full" "is not empty"
refused 02 "$work/file" "is not a folder"
echo "write total_of_02_1 = 40 + 2; there" >>lessons/01_a/hints.md
echo "  int total_of_02_1 = 40 + 2;" >>lessons/02_b/README.md
                                       refused 02 "$work/out" "leak: lessons/02_b/README.md:2:"
echo "// int total_of_02_2 = 40 + 2;" >>tests/early_test.cpp
                                       refused 02 "$work/out" "leak: tests/early_test.cpp:2:"
printf '+  return total_of_02_1;\n' >lessons/01_a/notes.patch.txt; git add -A
                                       refused 02 "$work/out" "leak: lessons/01_a/notes.patch.txt:1:"
echo "  // END SOLUTION 01.2" >>src/core/c.cpp; refused 02 "$work/out" "marks of the exercises are not right"
sed -i 's/long f1/int f1/' lessons/03_c/bug_03.2.patch
sed -i 's/-int f1/ int f1/; /+int f1/d; s/,[0-9]* @@/,6 @@/' lessons/03_c/bug_03.2.patch
                                       refused 03 "$work/out" "lessons/03_c/bug_03.2.patch"

if [ $failures -eq 0 ]; then echo "self-test of student: everything held"; else exit 1; fi
