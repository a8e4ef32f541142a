// Trees beside this one in which things are tried (build/course/tree, build/mutants/tree).
#pragma once
#include "tests/course/tree.h"

namespace gradus::course {

class TrialTree {
 public:
  explicit TrialTree(const fs::path& folder) : folder_(fs::absolute(folder)) {}
  // The files of `from`, without what git and make keep, are those of the tree. Only files that differ
  // change; a new tree begins with the objects of this one. So make compiles only what differs.
  void be_like(const fs::path& from) const;
  Ran make(const std::string& goals) const;  // with all cores
  // The tests of an exercise, of the program build/tests/NN.
  Ran tests_of(const std::string& id) const;
  fs::path operator/(const std::string& file) const { return folder_ / file; }
  const fs::path& path() const { return folder_; }

 private:
  fs::path folder_;
};

// Whether the program said that it ran tests, and that all passed.
inline bool passed(const Ran& ran) {
  return ran.good() && has(ran.output, "[  PASSED  ] ") && !has(ran.output, "[  PASSED  ] 0 ");
}
// At most so many lines of a log with one of these parts, shortened.
std::string lines_with(const std::string& log, const Lines& parts, size_t most);

}  // namespace gradus::course
