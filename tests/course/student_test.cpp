// What is handed out from a small tree of three lessons. Each leak and each wrong call is rejected.
#include "tests/course/small_tree.h"
#include "tests/course/tree.h"

namespace gradus::course {

class StudentTree : public SmallTree {
 protected:
  StudentTree() { make(); }
  // Its exercises are 01.1, 02.1, 02.2 and 03.1, as one commit.
  void make() {
    for (const std::string lesson : {"01_a", "02_b", "03_c"}) {
      const std::string nn = lesson.substr(0, 2), folder = "lessons/" + lesson;
      write(folder + "/main.cpp", "int main() {}\n");
      for (const std::string page : {"/README.md", "/hints.md"}) write(folder + page, "# a page\n");
      write(folder + "/part.h", "#pragma once\n");
      add("lessons/README.md", "| [" + lesson + "](" + lesson + "/README.md) | x |\n");
      add("README.md", "| [" + lesson + "](lessons/" + lesson + "/README.md) | x |\nmake lesson-" + nn +
                           "    a run of it\n    that goes on\n");
    }
    write("src/core/c.cpp", exercise("01.1") + exercise("03.1"));
    write("src/core/d.cpp", exercise("02.1", "todo(\"02.1\", \"x\", a, b);") +
                                exercise("02.2", "todo(\"02.2\", \"x\"); return 0;"));
    write("tests/early_test.cpp", "TEST(L01_A, X) {}\n");
    write("tests/mixed_test.cpp", "TEST(L01_A, Y) {}\nTEST(L03_A, X) {}\n");
    write("tests/late_test.cpp", "TEST_F(L03_B, X) {}\n");
    write("tests/reaching_test.cpp", "#include \"lessons/03_c/part.h\"\nTEST(L02_B, X) {}\n");
    for (const std::string file : {"lessons/03_testing.h", "course/predict_02.cpp", "course/predict_03.cpp"})
      write("tests/" + file, "int x;\n");
    write("bugged", replaced(replaced(read("src/core/c.cpp"), "return the_sum_03_1;", "return 7;"), "int f1",
                             "long f1"));
    const std::string patch =
        run("diff -u --label a/src/core/c.cpp --label b/src/core/c.cpp src/core/c.cpp bugged").output;
    fs::remove("bugged");
    write("lessons/02_b/bug_02.3.patch", patch);
    write("lessons/03_c/bug_03.2.patch", patch);
    const std::string d = "type: it is long\nsrc/core/d.cpp\n-int f2(int x) {\n+long f2(int x) {\n\n";
    write("tests/mutants/01.txt",
          "01.1_seven: scale: 7 is wrong\nsrc/core/c.cpp\n-  return the_sum_01_1;\n+  return 7;\n\n");
    write("tests/mutants/02.txt", "02_first: " + d + "02.1_long: " + d + "02_last: " + d);
    write("tests/mutants/03.txt", "03_long: " + d);
    commit();
    for (const std::string file : {"left_behind.txt", "lessons/01_a/answers.txt"}) write(file, "untracked\n");
  }
  std::string out() const { return (base_ / "out").string(); }
  void hand_out(const std::string& lesson) {
    fs::remove_all(out());
    EXPECT_EQ(course({"student", lesson, out()}), 0) << said;
  }
  bool there(const std::string& file) const { return fs::exists(base_ / "out" / file); }
  std::string text(const std::string& file) const { return read(base_ / "out" / file); }
  bool somewhere(const std::string& words) const {
    return run(say("grep -rqF --exclude-dir=.git -- ", shell_word(words), " ", out())).good();
  }
  std::string git(const std::string& command) const {
    return run(say("git -C ", out(), " ", command)).output;
  }
  // The call is rejected with this sentence and writes nothing.
  void expect_refused(const Lines& words, const std::string& sentence) {
    expect(words, 2, sentence);
    EXPECT_FALSE(fs::exists(out()));
  }
};

TEST_F(StudentTree, LaterLessonsAreNotThere) {
  hand_out("02");
  for (const std::string file :
       {"tests/mutants/01.txt", "README.md", "tests/course/predict_02.cpp", "lessons/01_a/part.h",
        "lessons/02_b/hints.md", "tests/early_test.cpp", "tests/mixed_test.cpp"})
    EXPECT_TRUE(there(file)) << file;
  for (const std::string file :
       {"tests/mutants/03.txt", "lessons/03_c", "tests/late_test.cpp", "tests/reaching_test.cpp",
        "tests/lessons/03_testing.h", "tests/course/predict_03.cpp", "left_behind.txt",
        "lessons/01_a/answers.txt"})
    EXPECT_FALSE(there(file)) << file;
  EXPECT_TRUE(has(text("lessons/README.md"), "02_b") && has(text("README.md"), "make lesson-02"));
  for (const std::string word : {"03_c", "lesson-03"}) EXPECT_FALSE(somewhere(word)) << word;
}

TEST_F(StudentTree, ExercisesOfTheLessonAreOpenAndOthersSolved) {
  hand_out("02");
  for (const std::string line : {"  return the_sum_01_1;\n", "  return the_sum_03_1;\n"})
    EXPECT_TRUE(has(text("src/core/c.cpp"), line)) << line;
  for (const std::string line :
       {"  // EXERCISE 02.1: see lessons/02_b/README.md\n  todo(\"02.1\", \"x\", a, b);\n}",
        "  todo(\"02.2\", \"x\");\n  return 0;\n"})
    EXPECT_TRUE(has(text("src/core/d.cpp"), line)) << line;
  for (const std::string word : {"the_sum_02", "SOLUTION", "STUB", "EXERCISE 01", "EXERCISE 03"})
    EXPECT_FALSE(somewhere(word)) << word;
  hand_out("all");
  EXPECT_TRUE(there("lessons/03_c") && there("tests/late_test.cpp"));
  for (const std::string id : {"01.1", "02.1", "02.2", "03.1"})
    EXPECT_TRUE(somewhere("EXERCISE " + id)) << id;
  EXPECT_FALSE(somewhere("the_sum_"));
}

TEST_F(StudentTree, WhatOnlyTeachersNeedIsNotThere) {
  write("tests/course/teacher/02.md", "# notes of lesson 02\n");
  write("tests/course/teacher/README.md", "# the course\n");
  for (const std::string page : {"README.md", "lessons/README.md"})
    add(page, "for all\n\nTeachers begin with [this page](tests/course/teacher/README.md).\n");
  commit();
  for (const std::string lesson : {"02", "all"}) {
    hand_out(lesson);
    EXPECT_FALSE(there("tests/course/teacher"));
    EXPECT_FALSE(somewhere("course/teacher")) << "a link to a page that is not there";
    for (const std::string page : {"README.md", "lessons/README.md"})
      EXPECT_TRUE(has(text(page), "for all\n")) << page;
  }
}

TEST_F(StudentTree, AWorkflowForGitHubRunsTheOpenExercises) {
  const std::string file = ".github/workflows/exercises.yml";
  const auto with_workflow = [&] {
    fs::remove_all(out());
    EXPECT_EQ(course({"student", "02", out(), "github"}), 0) << said;
    return text(file);
  };
  expect_refused({"student", "02", out(), "github"}, "tests/course/teacher/exercises.yml is missing");
  add("lessons/02_b/README.md", "- 02.2 *fill in*, 5 points: (1)\n- 02.1 *fill in*, 5 points: (2)\n");
  write("tests/course/teacher/exercises.yml", "# of HASH\nsteps:\n\n  - run: make test-ID\n");
  commit();
  const std::string first = with_workflow();
  EXPECT_EQ(after(first, "\n", ""),
            "steps:\n\n  - run: make test-02.2\n\n  - run: make test-02.1\n\n  - run: make test-02\n");
  EXPECT_EQ(with_workflow(), first);
  add("tests/early_test.cpp", "// a correction\n");
  EXPECT_NE(with_workflow(), first) << "its last change is the commit that was handed out";
  hand_out("02");
  EXPECT_FALSE(there(".github"));
}

TEST_F(StudentTree, BugsAndMutantsApplyWhereTheyGiveNothingAway) {
  hand_out("02");
  EXPECT_TRUE(has(text("lessons/02_b/bug_02.3.patch"), "-int f1(int x) {"));
  EXPECT_EQ(git("apply --check lessons/02_b/bug_02.3.patch"), "");
  EXPECT_TRUE(has(text("tests/mutants/01.txt"), "01.1_seven: scale: 7 is wrong"));
  EXPECT_FALSE(somewhere("02.1_long"));
  EXPECT_EQ(lines_of(text("tests/mutants/02.txt")).size(), 10u)
      << "the two other mutants, with an empty line after each";
  fs::current_path(out());
  EXPECT_EQ(mutants("01").at(0).changed(".").size(), 1u);
}

TEST_F(StudentTree, IsOneCommitAndTheSameAgain) {
  hand_out("02");
  EXPECT_EQ(git("rev-list --count HEAD"), "1\n");
  EXPECT_EQ(git("status --porcelain"), "");
  const std::string first = git("rev-parse HEAD");
  hand_out("02");
  EXPECT_EQ(git("rev-parse HEAD"), first);
  ASSERT_EQ(course({"student", "02", "build/inside"}), 0) << said;
  EXPECT_EQ(run("git -C build/inside rev-parse HEAD").output, first) << "handed out to a folder in the clone";
}

TEST_F(StudentTree, WrongCallsAreRefused) {
  write(base_ / "full/x", "");
  write(base_ / "file", "x");
  expect_refused({"student", "04", out()}, "there is no lesson 04; the lessons are 01 02 03");
  expect_refused({"student", "2", out()}, "there is no lesson 2");
  expect_refused({"student", "", out()}, "LESSON is missing");
  expect_refused({"student", "02", ""}, "OUT is missing");
  expect_refused({"student", "02", (base_ / "full").string()}, "is not empty");
  expect_refused({"student", "02", (base_ / "file").string()}, "is not a folder");
}

TEST_F(StudentTree, ALineOfASolutionElsewhereIsALeak) {
  const struct {
    std::string file, line, said;
  } leaks[] = {
      {"lessons/02_b/README.md", "  const int the_sum_02_1 = x + 1;\n", "leak: lessons/02_b/README.md:2:"},
      {"tests/early_test.cpp", "// const int the_sum_02_2 = x + 2;\n", "leak: tests/early_test.cpp:2:"},
      {"lessons/01_a/notes.patch.txt", "+  return the_sum_02_1;\n", "leak: lessons/01_a/notes.patch.txt:1:"}};
  for (const auto& leak : leaks) {
    const std::string before = read(leak.file);
    add(leak.file, leak.line);
    run("git add -A");
    expect_refused({"student", "02", out()}, leak.said);
    write(leak.file, before);
  }
  add("src/core/c.cpp", "  // END SOLUTION 01.2\n");
  expect_refused({"student", "02", out()}, "marks of the exercises are not right");
}

TEST_F(StudentTree, ABugThatChangesOnlyWhatIsOpenIsRefused) {
  const std::string patch = "lessons/03_c/bug_03.2.patch";
  edit(patch, "+long f1(int x) {\n", "");
  edit(patch, "-int f1(int x) {", " int f1(int x) {");
  expect_refused({"student", "03", out()}, patch);
}

}  // namespace gradus::course
