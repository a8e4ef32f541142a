// What the tools print for students, for each possible result. The test programs of this small tree of two
// lessons are scripts that write reports as GoogleTest does.
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/course/small_tree.h"

namespace gradus::course {

class Feedback : public SmallTree {
 protected:
  // Lesson 01 has 01.1 and 01.2 to fill in, 01.3 to predict, and a bug 01.4; lesson 02 has 02.1. All tests
  // pass.
  Feedback() {
    for (const std::string folder : {"kernels", "lessons/01_a", "lessons/02_b"})
      write(folder + "/main.cpp", "");
    write("lessons/01_a/README.md",
          "- 01.1 *fill in*, 10 points: a\n- 01.2 *fill in*, 10 points: b\n- 01.3 *predict the number*, 5 "
          "points: c\n- 01.4 *find the bug*: d\n");
    write("lessons/02_b/README.md", "- 02.1 *fill in*, 10 points: e\n");
    write("lessons/01_a/hints.md",
          "**01.1** 1. Think of x at -1. 2. Take\nf(2.\n3) of it.\n3. Add both.\n\n**01.2** 1. one\n");
    write("src/open.cpp",
          "int f() {\n  // EXERCISE 01.1: see lessons/01_a/README.md\n  todo(\"01.1\", \"do it\");\n}\n");
    write("src/filled.cpp", "int g() {\n  // EXERCISE 01.2: see lessons/01_a/README.md\n  return 7;\n}\n");
    write("tests/a_test.cpp",
          test_of("L01_A", "X", "01.1") + test_of("L01_A", "Y", "01.2") + test_of("L01_A", "Bug", "01.4"));
    write("tests/b_test.cpp", test_of("L02_A", "Z", "02.1"));
    write("tests/helper.h", "int helper;\n");
    write("Makefile", "counted: ;\n");
    plan({});
  }
  static std::string test_of(const std::string& suite, const std::string& name, const std::string& id) {
    return "TEST_P(" + suite + ", " + name + ") {\n  RecordProperty(\"exercise\", \"" + id + "\");\n}\n";
  }
  // The failure of each test, "" for one that passes. With `dies`, the program of lesson 01 prints this text
  // and ends early.
  struct Plan {
    std::string x = "", y = "", bug = "", other = "", dies = "";
  };
  static void plan(const Plan& p) {
    const auto program = [&](const std::string& name,
                             const std::vector<std::pair<std::string, std::string>>& tests) {
      nlohmann::json list = nlohmann::json::array();
      bool good = true;
      for (const auto& [test, failure] : tests) {
        nlohmann::json t{{"name", test + "/cpu"}, {"status", "RUN"}, {"result", "COMPLETED"}};
        if (!failure.empty()) t["failures"] = {{{"failure", "a_test.cpp:1\n" + failure}}}, good = false;
        list.push_back(t);
      }
      const nlohmann::json report{{"testsuites", {{{"name", "Devices/L01_A"}, {"testsuite", list}}}}};
      write("build/tests/" + name, "#!/bin/sh\ncat >\"${2#--gtest_output=json:}\" <<'E'\n" + report.dump() +
                                       "\nE\n" + (good ? "" : "exit 1\n"));
      fs::permissions("build/tests/" + name, fs::perms(0755));
    };
    program("01.1", {{"X", p.x}});
    program("01.2", {{"Y", p.y}});
    program("01.4", {{"Bug", p.bug}});
    program("01", {{"Bug", p.bug}, {"Other", p.other}});
    if (!p.dies.empty()) write("build/tests/01", "#!/bin/sh\necho '" + p.dies + "'\nexit 1\n");
  }
  static std::string open(const std::string& id) {
    return "C++ exception with description \"exercise " + id + " is open: do it\" thrown in the test.";
  }
  bool ends_with(const std::string& line) const { return said.ends_with("\n" + line + "\n"); }
};

TEST_F(Feedback, AllPass) {
  expect({"test", "01"}, 0, "01.1 is judged by L01_A.X\n");
  EXPECT_TRUE(has(said, "lesson 01: 2 of 2 exercises passed (01.1, 01.2)\n") && ends_with("2 passed"))
      << said;
}

TEST_F(Feedback, WhatIsOpenIsNoFailure) {
  plan({.x = open("01.1"), .other = "Value of: code\n  Actual: 1\nExpected: 0\n" + open("01.1")});
  expect({"test", "01"}, 0,
         "01.1 is open: src/open.cpp:2\nlesson 01: 1 of 2 exercises passed (01.2), 1 open (01.1)\n");
  EXPECT_TRUE(ends_with("1 passed, 1 open (they wait for exercises)")) << said;
  plan({.dies = "exercise 01.1 is open: do it"});
  expect({"test", "01"}, 0, "0 passed, 1 open (they wait for exercises)");
}

TEST_F(Feedback, AFailureSaysWhatAndWhere) {
  plan({.y = "Value of: r.ok\n  Actual: false\nExpected: true\nlinear: element 3: expected <1>, got 2"});
  expect({"test", "01"}, 1,
         "01.2 FAILS: cpu: linear: element 3: expected <1>, got 2; your lines: src/filled.cpp:2\n");
  EXPECT_TRUE(has(said, "lesson 01: 1 of 2 exercises passed (01.1), 1 FAILS (01.2)") && ends_with("2 passed"))
      << said;
  edit("src/filled.cpp", "  // EXERCISE 01.2: see lessons/01_a/README.md\n", "");
  expect({"test", "01.2"}, 1, "; your lines: see lessons/01_a/README.md");
}

TEST_F(Feedback, AnExerciseThatNeedsAnotherWaitsForIt) {
  plan({.y = open("01.1")});
  expect({"test", "01"}, 0, "01.2 is open: its test needs 01.1, which is open; your lines: src/filled.cpp:2");
  add("src/filled.cpp",
      "// BEGIN SOLUTION 01.2\n// STUB: todo(\"01.2\", \"do it\");\n// END SOLUTION 01.2\n");
  expect({"test", "01"}, 0, "its test needs 01.1, which is open");
}

TEST_F(Feedback, OtherTestsThatFailAreNamed) {
  plan({.bug = "wrong", .other = "wrong"});
  expect({"test", "01"}, 1, "lesson 01: 2 of 2 exercises passed (01.1, 01.2)");
  EXPECT_TRUE(has(said, "L01_A.Bug (01.4) FAILS: cpu: wrong\nL01_A.Other FAILS: cpu: wrong\n") &&
              ends_with("0 passed, 2 FAIL"))
      << said;
  plan({.dies = "no reason"});
  expect({"test", "01"}, 1, "01 FAILS: the program ended early, with exit code 1");
}

TEST_F(Feedback, OneExerciseAlone) {
  plan({.bug = "wrong"});
  expect({"test", "01.4"}, 1, "01.4 is judged by L01_A.Bug");
  EXPECT_TRUE(ends_with("lesson 01: 0 of 1 exercise passed, 1 FAILS (01.4)")) << said;
  expect({"test", "01.1"}, 0, "lesson 01: 1 of 1 exercise passed (01.1)");
  expect({"test", "01.3"}, 2, "exercise 01.3 is judged by make predict-01");
  expect({"test", "01.9"}, 2, "no test judges an exercise 01.9; the tests of lesson 01 judge 01.1 01.2 01.4");
  expect({"test", "03"}, 2, "there is no lesson 03; the lessons are 01 02");
}

TEST_F(Feedback, ProgressShowsWhatIsSolvedAndWhatIsStale) {
  plan({.x = open("01.1")});
  expect({"test", "01"}, 0, "");
  expect({"progress"}, 0, "01.1 open       01.2 passed     01.3 not tried   10 of 25 points");
  EXPECT_TRUE(has(said, "02.1 not tried") && ends_with("10 of 35 points")) << said;
  EXPECT_FALSE(has(said, "01.4") || has(said, "\033")) << said;
  plan({.x = "a\tb\nc"});
  expect({"test", "01"}, 1, "");
  expect({"progress"}, 0, "01.1 fails: cpu: a b (c); your lines");
  add("lessons/02_b/main.cpp", "int y;\n");
  expect({"progress"}, 0, "01.2 passed");
  for (const std::string file :
       {"tests/a_test.cpp", "tests/helper.h", "src/filled.cpp", "lessons/01_a/main.cpp"}) {
    add(file, "int y;\n");
    expect({"progress"}, 0, "01.1 stale      01.2 stale");
    EXPECT_TRUE(ends_with(
        "0 of 35 points; stale: the sources changed later; make test-NN, or predict-NN, judges again"))
        << said;
    expect({"test", "01"}, 1, "");
  }
  write("Makefile", "counted:\n\t@echo 'int z;' >>src/filled.cpp\n");
  expect({"test", "01"}, 1, "");
  expect({"progress"}, 0, "01.2 stale");  // the sources changed while they were judged
}

TEST_F(Feedback, PredictionsAreKeptUntilTheAnswersChange) {
  write("predict", "#!/bin/sh\necho '01.3: passed: 2 of 2 right'\n");
  write("faster", "#!/bin/sh\necho \"faster 01.2: $1\"\n");
  for (const std::string file : {"predict", "faster"}) fs::permissions(file, fs::perms(0755));
  expect({"predict", "01", "./predict", "ada"}, 0, "01.3: passed");
  expect({"progress"}, 0, "01.3 passed");
  write("lessons/01_a/answers.txt", "01.3 a = 7\n");
  expect({"progress"}, 0, "01.3 stale");
  const std::pair<std::string, std::string> verdicts[] = {{"'right; 1.5 times'", "01.2 passed"},
                                                          {"'right; 0.9 times'", "01.2 open"},
                                                          {"'wrong: element 3'", "01.2 failed"}};
  for (const auto& [verdict, state] : verdicts) {
    expect({"faster", "./faster", verdict}, 0, "faster 01.2: ");
    expect({"progress"}, 0, state);
  }
}

TEST_F(Feedback, ResultsOfSeveralRunsAtOnceAreAllKept) {
  write("predict", "#!/bin/sh\necho '01.3: passed: 2 of 2 right'\n");
  fs::permissions("predict", fs::perms(0755));
  std::vector<std::thread> runs;
  for (int k = 0; k < 8; ++k) runs.emplace_back([] { main_of({"predict", "01", "./predict", "ada"}); });
  for (std::thread& t : runs) t.join();
  EXPECT_EQ(lines_of(read("build/progress.tsv")).size(), 8u);
}

TEST_F(Feedback, HintsComeOneByOne) {
  expect({"hint", "01.1"}, 0, "hint 1 of 3 for 01.1: Think of x at -1.\n2 more: make hint-01.1");
  EXPECT_FALSE(has(said, "Take"));
  expect({"hint", "01.1"}, 0, "hint 2 of 3 for 01.1: Take f(2. 3) of it.");
  expect({"hint", "01.1"}, 0, "hint 3 of 3 for 01.1: Add both.\nthat was the last one");
  expect({"hint", "01.1"}, 0,
         "no more hints for 01.1; all three again:\nhint 1 of 3 for 01.1: Think of x at -1.\nhint 2 of 3");
  expect({"hint", "01.9"}, 2, "lesson 01 has no exercise 01.9; it has 01.1 01.2 01.3 01.4");
  expect({"hint", "1.1"}, 2, "there is no exercise 1.1; write make hint-NN.k with one of 01.1 01.2");
  expect({"hint", "02.1"}, 2, "there are no hints for exercise 02.1; its page is lessons/02_b/README.md");
}

}  // namespace gradus::course
