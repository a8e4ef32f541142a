# small_tree.sh: for self-tests (. small_tree.sh): in $base/tree, a tree of two lessons with a Makefile of its own
# and a header that stands in for GoogleTest; `fresh` makes it anew and goes there.
base=$(mktemp -d) && trap 'rm -rf "$base"' EXIT
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 CXX="${CXX:-g++}"
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE MAKEFLAGS MAKELEVEL MFLAGS

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
