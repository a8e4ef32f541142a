// The programs with a student's files in them: each file is compiled alone, each program is linked from one
// file of the student's and the solved rest.
#pragma once
#include <map>

#include "tests/course/cell.h"
#include "tests/course/tree.h"

namespace gradus::course {

// What is wrong with what was handed in: a state of grade_reports.h and a sentence; nothing, if the state is
// "".
struct Problem {
  std::string state, message;
};

class GradedBuild {
 public:
  // Of these exercises' files, and of the tests that record them. `submission` is a tree as it was handed
  // out, or only the files that count, by their paths or all in one folder. Nothing else of it is looked at,
  // and no link is followed.
  GradedBuild(const std::string& lesson, const fs::path& submission, Cell& cell);
  // Builds the solved tree and copies it to the cell, with these other programs.
  void prepare(const Lines& other_programs);
  // Compiles the student's files, one at a time; problem_of() then says what is wrong with one.
  void compile();
  const Problem& problem_of(const std::string& id) { return problems_[files_[id]]; }
  // A file of the submission, from its place there or from the top.
  Problem take(const std::string& file, const fs::path& to) const;
  // The program `program` with the student's file of exercise `id` in it, or, for "", the solution. Why it
  // cannot be linked, or "".
  std::string link(const std::string& program, const fs::path& to, const std::string& id);
  const std::vector<Recorded>& tests() const { return tests_; }

 private:
  void compile_one(const std::string& file);
  Names wanted_of(const std::string& file) const;
  std::string wrong_symbols(const std::string& file, const fs::path& object) const;
  void keep_to_itself(const std::string& file, const fs::path& object) const;
  std::string included_from_outside(fs::path object) const;
  std::string first_error(const std::string& output) const;
  fs::path copy_of(const std::string& whose, const std::string& file) const;
  bool is_plain(const fs::path& path) const;

  fs::path submission_;
  Cell& cell_;
  std::map<std::string, std::string> files_;  // of the exercises with marks
  Names all_files_, taken_, used_;       // taken: the names that objects define or use; used: from others
  std::map<std::string, Lines> shared_;  // inline functions and the like: the objects that define them
  std::vector<Recorded> tests_;
  std::map<std::string, Problem> problems_;
};

}  // namespace gradus::course
