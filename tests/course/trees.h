// Copies of this tree for trials (build/course/tree, build/mutants/tree).
#pragma once
#include "tests/course/tree.h"

namespace gradus::course {

class TrialTree {
 public:
  explicit TrialTree(const fs::path& folder) : folder_(fs::absolute(folder)) {}
  // Gives the tree the files of `from`, except .git and build. Only files that differ are written, and a new
  // tree starts with the object files of this one, so make only compiles the files that differ.
  void be_like(const fs::path& from) const;
  Ran make(const std::string& goals) const;  // with all cores
  // Runs the tests of an exercise in the program build/tests/NN.
  Ran tests_of(const std::string& id) const;
  fs::path operator/(const std::string& file) const { return folder_ / file; }
  const fs::path& path() const { return folder_; }

 private:
  fs::path folder_;
};

// Whether the program reported that tests ran and that all passed.
inline bool passed(const Ran& ran) {
  return ran.good() && has(ran.output, "[  PASSED  ] ") && !has(ran.output, "[  PASSED  ] 0 ");
}
// The first lines of a log, at most `most`, that contain one of `parts`; each is cut to 200 characters.
std::string lines_with(const std::string& log, const Lines& parts, size_t most);

}  // namespace gradus::course
