// Progress of long work, on stderr: on a terminal one line with a bar and the time left, rewritten in place;
// elsewhere a plain line every tenth of the way.
#pragma once
#include <cstdint>
#include <string>

namespace gradus {

class Progress {
 public:
  Progress(std::string what, int64_t total);
  void step(int64_t done, double loss);  // shown at most five times a second
  void done();                           // ends the line

 private:
  std::string what_;
  int64_t total_, last_tenth_ = 0;
  bool terminal_;
  double start_, last_shown_ = 0;
};

}  // namespace gradus
