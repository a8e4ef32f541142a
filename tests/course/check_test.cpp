// In a small tree that builds: check finds one fault of each kind, mutants have each possible result, and a
// bug is put in and taken out.
#include "tests/course/small_tree.h"
#include "tests/course/tree.h"

namespace gradus::course {

class CheckedTree : public SmallTree {
 protected:
  // Two lessons, a Makefile, and a header in place of GoogleTest.
  CheckedTree() { make(); }
  void make() {
    fs::current_path(base_.path());
    fs::remove_all("tree");
    fs::create_directories("tree/kernels");
    fs::current_path("tree");
    for (const std::string folder : {"lessons/01_a", "lessons/02_b"}) {
      write(folder + "/main.cpp", "int main() {}\n");
      write(folder + "/p.h", "#pragma once\n");
    }
    write("lessons/01_a/README.md", "- 01.1 *fill in*\n- 01.2 *fill in*\n- 01.3 *predict*\n");
    for (const std::string id : {"01.1", "01.2", "01.3"})
      add("lessons/01_a/hints.md", "**" + id + "** 1. a 2. b\n3. c\n\n");
    write("Makefile", R"(MAIN := $(wildcard src/*.cpp)
build/tests/%: $(wildcard tests/*_test.cpp) $(MAIN) src/t.h
	@mkdir -p build/tests && g++ -I. $(wildcard tests/*_test.cpp) $(MAIN) -o $@
test-%: build/tests/%
	@$<
)");
    write("src/t.h", R"(#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
int f1(int), f2(int);
template <class T> [[noreturn]] void todo(const char* id, T) { std::printf("exercise %s is open\n", id); std::exit(1); }
struct Test { const char* name; void (*run)(bool&); Test* next; };
inline Test* tests = nullptr;
inline void RecordProperty(const char*, const char*) {}
#define TEST(suite, name) \
  static void name(bool&); \
  static Test of_##name{#suite "." #name, name, tests}; \
  static Test* in_##name = tests = &of_##name; \
  static void name(bool& good)
#define EXPECT(x) if (!(x)) good = false, std::puts("Failure")
)");
    write("tests/main_test.cpp", R"(#include "src/t.h"
int main(int argc, char** argv) {
  const char* filter = argc > 1 ? argv[argc - 1] : "*";
  bool good = true;
  for (Test* t = tests; t; t = t->next) {
    if (!std::strchr(filter, '_') || std::strstr(filter, "*L") || std::strstr(filter, t->name)) {
      std::printf("[ RUN      ] %s\n", t->name); std::fflush(stdout);
      bool mine = true;
      t->run(mine);
      if (!mine) std::printf("[  FAILED  ] %s (0 ms)\n", t->name), good = false;
    }
  }
  if (good) std::puts("[  PASSED  ] 2 tests.");
  return good ? 0 : 1;
}
)");
    write("src/a.cpp", "#include \"src/t.h\"\n" + exercise("01.1"));
    write("src/b.cpp", "#include \"src/t.h\"\n" + exercise("01.2"));
    write("tests/a_test.cpp", test_of("01.1", "f1(1) == 2"));
    write("tests/b_test.cpp", test_of("01.2", "f2(f1(1)) == 4"));
    commit();
    write("tests/mutants/01.txt",
          "01.1_two: kind: what is wrong\nsays: Failure\nsrc/a.cpp\n-  const int the_sum_01_1 = x + 1;\n+  "
          "const int the_sum_01_1 = x + 2;\n\n01.2_three: kind: what is wrong\nsays: Failure\nsrc/b.cpp\n-" +
              kSum + "\n+  const int the_sum_01_2 = x + 3;\n\n");
  }
  static std::string test_of(const std::string& id, const std::string& expression) {
    return "#include \"src/t.h\"\nTEST(L" + id.substr(0, 2) + "_T, Exercise" + id.substr(3) +
           ") {\n  RecordProperty(\"exercise\", \"" + id + "\");\n  EXPECT(" + expression + ");\n}\n";
  }
  // Exercise 01.3 is a bug, which replaces a line of src/c.cpp by `bugged`.
  static void bug(const std::string& bugged) {
    edit("src/t.h", "f2(int);", "f2(int), f3(int);");
    write("src/c.cpp", "#include \"src/t.h\"\nint f3(int x) {\n  return x;\n}\n");
    write("tests/c_test.cpp", test_of("01.3", "f3(1) == 1"));
    write("build/bugged", replaced(read("src/c.cpp"), "  return x;", bugged));
    write("lessons/01_a/bug_01.3.patch",
          run("diff -u --label a/src/c.cpp --label b/src/c.cpp src/c.cpp build/bugged").output);
  }
  // A mutant that replaces the line `from` of src/b.cpp by `to`.
  static void mutant(const std::string& name, const std::string& from, const std::string& to) {
    add("tests/mutants/01.txt", name + ": kind: what is wrong\nsrc/b.cpp\n-" + from + "\n+" + to + "\n\n");
  }
  void expect_fault(const std::string& sentence) {
    run("git add -A");
    expect({"check", "01"}, 1, sentence);
    EXPECT_FALSE(fs::exists("tests/course/checked.txt"));
    make();
  }
  static inline const std::string kSum = "  const int the_sum_01_2 = x + 2;",
                                  kResult = "  return the_sum_01_2;";
};

TEST_F(CheckedTree, WhatIsGoodIsKeptUntilSomethingItNeedsChanges) {
  bug("  return -x;");
  run("git add -A");
  expect({"check", "01"}, 0, "0 faults");
  const auto changed = [&](const std::string& now) {
    EXPECT_EQ(course({"changed"}), 0);
    EXPECT_EQ(said, now);
  };
  changed("02\n");
  const struct {
    std::string file, line, now;
  } edits[] = {{"src/b.cpp", "int z;\n", "01\n02\n"},
               {"src/c.cpp", "int z;\n", "01\n02\n"},
               {"src/t.h", "int z;\n", "02\n"},
               {"tests/b_test.cpp", "int z;\n", "01\n02\n"},
               {"lessons/01_a/p.h", "int z;\n", "01\n02\n"},
               {"lessons/01_a/hints.md", "1. d\n", "01\n02\n"},
               {"lessons/01_a/bug_01.3.patch", "\n", "01\n02\n"},
               {"lessons/01_a/README.md", "- 01.4 *x*\n", "01\n02\n"},
               {"lessons/01_a/README.md", "Measured: 7.\n", "02\n"},
               {"lessons/02_b/main.cpp", "int z;\n", "02\n"}};
  for (const auto& e : edits) {
    const std::string before = read(e.file);
    add(e.file, e.line);
    changed(e.now);
    write(e.file, before);
  }
}

TEST_F(CheckedTree, FaultsOnPaperAreFound) {
  add("src/a.cpp", "// END SOLUTION 01.2\n");
  expect_fault("src/a.cpp:9: END SOLUTION 01.2 does not close anything");
  edit("src/a.cpp", "todo(\"01.1\"", "todo(\"01.2\"");
  expect_fault("src/a.cpp:3: the STUB of exercise 01.1 does not name it");
  write("src/t.h", read("src/t.h") + read("src/b.cpp"));
  fs::remove("src/b.cpp");
  expect_fault("exercise 01.2: is in a header");
  edit("lessons/01_a/README.md", "- 01.2 *fill in*\n", "");
  expect_fault("exercise 01.2 is in the sources and not on the page");
  edit("lessons/01_a/hints.md", "3. c", "");
  expect_fault("exercise 01.2 does not have the three hints");
  edit("lessons/01_a/README.md", "predict", "predict the number");
  expect_fault("exercise 01.3: tests/course/predict_01.cpp should judge it, but does not contain its id");
  edit("lessons/01_a/README.md", "predict", "make it faster");
  expect_fault("exercise 01.3: tests/course/faster_01.cpp should judge it");
  edit("lessons/01_a/README.md", "*\n", "*, 7 points: x\n");
  expect_fault("no row '| 01 | minutes | 21 |', the points of lessons/01_a/README.md");
  edit("lessons/01_a/README.md", "01.1 *fill in*",
       "01.1 *fill in*, 7 points: `L01_T.Exercise1` (3 points) and\n  `L01_T.E*` (3 points; all)");
  expect_fault("exercise 01.1 has 7 points, and its tests have 6");
  edit("lessons/01_a/README.md", "01.1 *fill in*", "01.1 *fill in*, 7 points: `L01_T.Exercise2` (7 points)");
  expect_fault("exercise 01.1 has points for L01_T.Exercise2, which does not record it");
  edit("tests/mutants/01.txt", "01.2_three", "01_three");
  expect_fault("exercise 01.2: no mutant of it in tests/mutants/01.txt has a line 'says:'");
  fs::remove("tests/b_test.cpp");
  expect_fault("exercise 01.2: no test has RecordProperty(\"exercise\", \"01.2\")");
  write("tests/c_test.cpp", test_of("01.9", "f2(f1(1)) == 4"));
  expect_fault("records exercise 01.9, which is not on");
}

TEST_F(CheckedTree, FaultsOfWhatIsBuiltAreFound) {
  add("lessons/01_a/hints.md", "write the_sum_01_1; const int the_sum_01_1 = x + 1;\n");
  expect_fault("leak: lessons/01_a/hints.md");
  write("tests/b_test.cpp", test_of("01.2", "1 == 1"));
  expect_fault("exercise 01.2 is open, and its test passes");
  write("tests/b_test.cpp", test_of("01.2", "f1(1) == 2"));
  expect_fault("exercise 01.2 is open, and its test passes");
  write("tests/a_test.cpp", test_of("01.1", "f2(1) == 3"));
  expect_fault("exercise 01.1 is open, and its test fails without naming it");
  write("tests/a_test.cpp", test_of("01.1", "f1(1) == 2 && f2(1) == 3"));
  expect_fault("exercise 01.1 is solved, and its test does not pass while these are open: 01.2");
  write("tests/b_test.cpp", test_of("01.2", "f2(1) == 4"));
  expect_fault("exercise 01.2 is solved, and its test does not pass");
  add("src/t.h", "#include \"lessons/02_b/p.h\"\n");
  expect_fault("lesson 01, open: 01.1 01.2: the tree does not build");
  write("tests/c_test.cpp", test_of("01.4", "fopen(\"lessons/02_b/p.h\", \"r\")"));
  add("lessons/01_a/README.md", "- 01.4 *x*\n");
  expect_fault("make test-01 fails in a tree without the later lessons");
  bug("  return x * 1;");
  expect_fault("exercise 01.3: with its bug, its test passes");
  bug("  return y;");
  expect_fault("exercise 01.3: with its bug the tree does not build");
}

TEST_F(CheckedTree, MutantsAreKilledOrSurvive) {
  setenv("LIMIT", "1", 1);
  mutant("01_for_ever", kResult, "  for (volatile int i = 0; i < 1;) {} return the_sum_01_2;");
  mutant("01_crashes", kResult, "  std::abort();");
  expect({"mutants", "01"}, 0, "01.2_three: killed by L01_T.Exercise2 (");
  for (const std::string part : {"01_for_ever: killed by L01_T.Exercise2, stopped after 1 s",
                                 "01_crashes: killed", "lesson 01: 4 of 4 mutants killed"})
    EXPECT_TRUE(has(said, part)) << said;
  EXPECT_EQ(run("git status --porcelain -- src").output, "") << "the tree itself was changed";
  expect({"check", "01"}, 0, "0 faults");
  mutant("01_alive", "int f2(int x) {", "int f2(const int x) {");
  expect({"mutants", "01"}, 1,
         "lesson 01: 4 of 5 mutants killed\n  01_alive survives: no reason is given\n  at least 95 % must "
         "be killed");
  edit("tests/mutants/01.txt", "01_alive: kind: what is wrong\n",
       "01_alive: kind: what is wrong\nsurvives: it is the same\n");
  expect({"mutants", "01"}, 1, "01_alive survives: it is the same");
  edit("tests/mutants/01.txt", "01.2_three: kind: what is wrong\nsays: Failure",
       "01.2_three: kind: what is wrong\nsays: three is added");
  expect({"mutants", "01"}, 1,
         "01.2_three: error is not named: the tests of exercise 01.2 do not say: three is added");
  edit("tests/b_test.cpp", "  EXPECT", "  if (f2(0) == 3) std::puts(\"three is added\");\n  EXPECT");
  expect({"mutants", "01"}, 1, "01.2_three: killed by L01_T.Exercise2");
  mutant("01.2_alive", "int f2(int x) {", "int f2(const int x) {");
  expect({"check", "01"}, 1, "01.2_alive: survives");
}

TEST_F(CheckedTree, MutantsThatCannotBeJudgedAreNamed) {
  mutant("01_wrong_syntax", kResult, "  retrun the_sum_01_2;");
  mutant("01_elsewhere", "  const int another = x + 2;", "  const int the_sum_01_2 = x + 3;");
  expect({"mutants", "01"}, 1, "01_wrong_syntax: error does not compile");
  EXPECT_TRUE(has(said, "01_elsewhere: error does not apply: its old text is not in src/b.cpp") &&
              has(said, "2 could not be judged"))
      << said;
  write("tests/mutants/01.txt", "");
  mutant("01_which", kSum, "  const int the_sum_01_2 = x + 3;");
  add("src/b.cpp", "#if 0\n" + kSum + "\n#endif\n");
  expect({"mutants", "01"}, 1,
         "01_which: error does not apply: its old text occurs more than once in src/b.cpp");
  expect({"mutants", "01_none"}, 2,
         "there is no mutant 01_none; write NN for all of a lesson (there are 01)");
  write("tests/a_test.cpp", test_of("01.1", "f1(1) == 5"));
  expect({"mutants", "01"}, 2, "L01_T.Exercise1 fails without any mutant; nothing is judged");
}

TEST_F(CheckedTree, AMutantMayChangeSeveralFiles) {
  // With context lines, and with lines that are only added or only removed.
  write("tests/mutants/01.txt", "01_two: kind: two\nsrc/b.cpp\n-" + kSum +
                                    "\n+  const int y = 3;\n+  const int the_sum_01_2 = x + y;\nsrc/a.cpp\n  "
                                    " const int the_sum_01_1 = x + 1;\n-  return the_sum_01_1;\n");
  const auto changed = mutants("01").at(0).changed(".");
  ASSERT_EQ(changed.size(), 2u);
  EXPECT_EQ(changed[0].second, replaced(read("src/a.cpp"), "  return the_sum_01_1;\n", ""));
  EXPECT_EQ(changed[1].second, replaced(read("src/b.cpp"), "x + 2", "x + y")
                                   .insert(read("src/b.cpp").find("  const int"), "  const int y = 3;\n"));
}

TEST_F(CheckedTree, ABugIsPutInAndTakenOut) {
  write("tests/mutants/01.txt", "");
  mutant("01_three", kSum, "  const int the_sum_01_2 = x + 3;");
  commit();
  const auto is_in = [] { return has(read("src/b.cpp"), "x + 3"); };
  expect({"bug", "01", "undo"}, 2, "no bug was put in");
  expect({"bug", "01"}, 0, "a bug is in");
  EXPECT_TRUE(is_in());
  expect({"bug", "01"}, 2, "a bug is in already");
  expect({"bug", "01", "undo"}, 0, "the bug is out");
  EXPECT_EQ(run("git status --porcelain -- src").output, "");
  add("src/b.cpp", "\n");
  expect({"bug", "01"}, 2, "has changes of yours");
  run("git checkout -q src/b.cpp");
  expect({"bug", "01", "", "1x"}, 2, "SEED=1x is not a number");
  edit("tests/mutants/01.txt", "wrong\n", "wrong\nsurvives: it does\n");
  expect({"bug", "01"}, 2, "there is no bug for lesson 01");
}

}  // namespace gradus::course
