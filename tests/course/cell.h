// A sandbox in which a student's code is compiled and run.
#pragma once
#include <sys/types.h>

#include "tests/course/text.h"

namespace gradus::course {

// An error of the grader itself: no student loses points because of it.
struct GraderError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The result of a command.
struct Ended {
  int code = 0;
  double seconds = 0;
  bool late = false;           // it exceeded its time limit
  std::string output, report;  // its output; the report of grade_main.cpp, "" without one
  bool good() const { return code == 0 && !late; }
};

// A folder with a copy of the tree and, if this process is root, a user without privileges.
class Cell {
 public:
  Cell();
  ~Cell();
  bool isolated() const { return user_ != 0; }
  fs::path operator/(const std::string& name) const { return work_ / name; }
  // Runs a command in the folder tree for at most `seconds`, with the system's tools: timeout limits the
  // time, prlimit the memory and the file size of each process, and setpriv drops the privileges. The first
  // 64 KiB of the output are kept. The command can only write to the folder scratch, which is new in each
  // call. When limited() returns, all processes of the user have ended.
  Ended limited(double seconds, const std::string& command);

 private:
  std::string as_user() const;  // the prefix of a command that runs as the user
  Scratch work_;
  uid_t user_;  // 0: the user of this process
};

}  // namespace gradus::course
