// Where a student's code is compiled and run.
#pragma once
#include <sys/types.h>

#include "tests/course/text.h"

namespace gradus::course {

// An error of the grader's, for which no student loses a point.
struct GraderError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How a command ended, and what it left.
struct Ended {
  int code = 0;
  double seconds = 0;
  bool late = false;           // it took longer than it may
  std::string output, report;  // what it printed; what grade_main.cpp reported, if it did
  bool good() const { return code == 0 && !late; }
};

// A folder with a copy of the tree, and a user without rights, if this is root.
class Cell {
 public:
  Cell();
  ~Cell();
  bool isolated() const { return user_ != 0; }
  fs::path operator/(const std::string& name) const { return work_ / name; }
  // Runs a command in the folder tree, for so many seconds at most, by the system's tools: timeout bounds the
  // time, prlimit what each process may hold and write, setpriv takes the rights. Of what it prints 64 KiB
  // are kept. It can write to the folder scratch alone, which is new each time. When this ends, so has
  // everything that the user started.
  Ended limited(double seconds, const std::string& command);

 private:
  std::string as_user() const;  // what a command begins with, to run with the user's rights
  Scratch work_;
  uid_t user_;  // 0: the one who grades
};

}  // namespace gradus::course
