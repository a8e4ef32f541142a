#!/bin/sh
# check_course_selftest.sh: a small tree of two lessons, with a Makefile of its own and a header that stands in for
# GoogleTest; plants one fault of each kind and sees that check_course.sh names it.
tools=$(cd "$(dirname "$0")" && pwd)
base=$(mktemp -d) && trap 'rm -rf "$base"' EXIT
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 CXX="${CXX:-g++}"
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE MAKEFLAGS MAKELEVEL MFLAGS
failures=0

exercise() {  # ID: a function f2 for 01.2 that adds ID's digits to x
  k=${1#*.}
  printf '#include "src/t.h"\nint f%s(int x) {\n  // BEGIN SOLUTION %s\n  const int the_sum_%s = x + %s;\n' \
    "$k" "$1" "$k" "$k"
  printf '  return the_sum_%s;\n  // STUB: todo("%s", x);\n  // END SOLUTION %s\n}\n' "$k" "$1" "$1"
}
test_of() {  # ID EXPRESSION
  printf '#include "src/t.h"\nTEST(L%s_T, Exercise%s) {\n  RecordProperty("exercise", "%s");\n  EXPECT(%s);\n}\n' \
    "${1%.*}" "${1#*.}" "$1" "$2"
}

# The header: TEST, EXPECT, and a main that runs the one test of the program as GoogleTest would say it.
header() {
  cat <<'H'
#pragma once
#include <cstdio>
#include <cstdlib>
int f1(int), f2(int);
template <class T> [[noreturn]] void todo(const char* id, T) { std::printf("exercise %s is open\n", id); std::exit(1); }
inline void RecordProperty(const char*, const char*) {}
#define TEST(suite, name) int main()
#define EXPECT(x) std::puts((x) ? "[  PASSED  ] 1 test." : "Failure"); return (x) ? 0 : 1
H
}
makefile() {
  cat <<'H'
MAIN := $(wildcard src/*.cpp)
TESTS := $(patsubst tests/%.cpp,build/tests/%,$(wildcard tests/*_test.cpp))
build/tests/%: tests/%.cpp $(MAIN)
	@mkdir -p build/tests && $(CXX) -I. $< $(MAIN) -o $@
test-%: $(TESTS)
	@for t in $(TESTS); do $$t || exit 1; done
H
}

fresh() {
  rm -rf "${base:?}/tree" && mkdir -p "$base/tree/src" "$base/tree/tests" "$base/tree/kernels" && cd "$base/tree" || exit 1
  for lesson in 01_a 02_b; do
    mkdir -p lessons/$lesson && echo "int main() {}" >lessons/$lesson/main.cpp && echo "#pragma once" >lessons/$lesson/p.h
  done
  printf -- '- 01.1 *fill in*\n- 01.2 *fill in*\n- 01.3 *predict*\n' >lessons/01_a/README.md
  for id in 01.1 01.2 01.3; do printf '**%s** 1. a 2. b\n3. c\n\n' $id; done >lessons/01_a/hints.md
  makefile >Makefile
  header >src/t.h
  exercise 01.1 >src/a.cpp
  exercise 01.2 >src/b.cpp
  test_of 01.1 'f1(1) == 2' >tests/a_test.cpp
  test_of 01.2 'f2(f1(1)) == 4' >tests/b_test.cpp
  git init -q && git add -A && git -c user.name=n -c user.email=e@example.org commit -qm one
}

# expect TEXT: check_course.sh of lesson 01 fails and prints TEXT. Then the tree is made anew.
expect() {
  git add -A
  if sh "$tools/check_course.sh" 01 >"$base/report" 2>&1 || ! grep -qF -- "$1" "$base/report"; then
    echo "self-test of check-course: did not find: $1"
    cat "$base/report"
    failures=$((failures + 1))
  fi
  fresh
}

fresh
sh "$tools/check_course.sh" 01 >"$base/report" 2>&1 ||
  { echo "self-test of check-course: a tree without a fault fails:"; cat "$base/report"; failures=1; }
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
sed -i 's/^- 01.2.*//' lessons/01_a/README.md; expect "exercise 01.2 is in the sources and not on the page"
sed -i 's/3\. c//' lessons/01_a/hints.md;   expect "exercise 01.2 has not the three hints"
rm tests/b_test.cpp;                        expect 'exercise 01.2: no test has RecordProperty("exercise", "01.2")'
test_of 01.9 'f2(f1(1)) == 4' >tests/c_test.cpp; expect "records exercise 01.9, which is not on"

if [ $failures -eq 0 ]; then echo "self-test of check-course: every planted fault was found"; else exit 1; fi
