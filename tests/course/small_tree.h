// A small tree of lessons, in which tests call the tools of the course and compare their output.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/course/commands.h"

namespace gradus::course {

class SmallTree : public testing::Test {
 protected:
  SmallTree() : before_(fs::current_path()) {
    for (const char* name :
         {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"})
      unsetenv(name);
    setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1);
    fs::create_directory(base_ / "tree");
    fs::current_path(base_ / "tree");
  }
  ~SmallTree() override { fs::current_path(before_); }

  // Calls `course` with these words; `said` is then its output.
  int course(const Lines& words) {
    std::ostringstream text;
    std::streambuf *out = std::cout.rdbuf(text.rdbuf()), *err = std::cerr.rdbuf(text.rdbuf());
    const int code = main_of(words);
    std::cout.rdbuf(out);
    std::cerr.rdbuf(err);
    said = text.str();
    return code;
  }
  // Calls `course` and expects this exit code, and this part of its output.
  void expect(const Lines& words, int code, const std::string& part) {
    EXPECT_EQ(course(words), code) << joined(words) << "\n" << said;
    EXPECT_TRUE(has(said, part)) << "it should say: " << part << "\n" << said;
  }
  static void add(const fs::path& file, const std::string& text) { write(file, read(file) + text); }
  static void edit(const fs::path& file, const std::string& from, const std::string& to) {
    ASSERT_TRUE(has(read(file), from)) << file << ": " << from;
    write(file, replaced(read(file), from, to));
  }
  static void commit() {
    run("git init -q; git add -A && GIT_COMMITTER_DATE=2026-01-02T03:04:05+0000 git -c user.name=n -c "
        "user.email=e@example.org commit -qm one");
  }

  Scratch base_;
  std::string said;

 private:
  fs::path before_;
};

// A function f2 for exercise 01.2, whose solution adds 2 to x.
inline std::string exercise(const std::string& id, const std::string& stub = "") {
  const std::string k = id.substr(3), sum = "the_sum_" + id.substr(0, 2) + "_" + k;
  return say("int f", k, "(int x) {\n  // BEGIN SOLUTION ", id, "\n  const int ", sum, " = x + ", k,
             ";\n  return ", sum, ";\n  // STUB: ", stub.empty() ? "todo(\"" + id + "\", x);" : stub,
             "\n  // END SOLUTION ", id, "\n}\n");
}

}  // namespace gradus::course
