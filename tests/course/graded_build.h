// Builds the programs that contain a student's files: each file is compiled alone, and each program is linked
// from one of these files and the solved rest.
#pragma once
#include <map>

#include "tests/course/cell.h"
#include "tests/course/tree.h"

namespace gradus::course {

// A problem of a submitted file: a state of grade_reports.h and a sentence. The state "" means no problem.
struct Problem {
  std::string state, message;
};

class GradedBuild {
 public:
  // For the files with the exercises of `lesson`, and their tests. `submission` is a tree as it was handed
  // out, or has only these files, at their paths or all in one folder. Other files are ignored, and no link
  // is followed.
  GradedBuild(const std::string& lesson, const fs::path& submission, Cell& cell);
  // Builds the solved tree and copies it to the cell, with these other programs.
  void prepare(const Lines& other_programs);
  // Compiles the student's files, one at a time; problem_of() then returns the problem of a file.
  void compile();
  const Problem& problem_of(const std::string& id) { return problems_[files_[id]]; }
  // Copies a file of the submission, from its path there or from the top folder, to `to`.
  Problem take(const std::string& file, const fs::path& to) const;
  // Links `program` with the student's file of exercise `id` or, for "", with the solution. Returns the
  // error, or "".
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
  std::map<std::string, std::string> files_;  // by exercise, for exercises with marks
  Names all_files_, taken_, used_;       // taken: symbols that objects define or use; used: undefined ones
  std::map<std::string, Lines> shared_;  // inline functions etc.: the objects that define them
  std::vector<Recorded> tests_;
  std::map<std::string, Problem> problems_;
};

}  // namespace gradus::course
