// Progress of long work, on stderr: on a terminal one line with a bar and the time left, rewritten in place;
// elsewhere a plain line every tenth of the way.
#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace gradus {

class Progress {
 public:
  Progress(std::string what, int64_t total, std::FILE* out = stderr);
  ~Progress() { done(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows `done` of `total` and the loss, if given. Cheap: it writes to a terminal at most 5 times per
  // second.
  void step(int64_t done, std::optional<double> loss = {});
  void done();  // ends the line, so that other output can follow

 private:
  void show(int64_t done, std::optional<double> loss, double now);

  std::string what_;
  int64_t total_, last_tenth_ = 0;
  std::FILE* out_;
  bool terminal_, line_open_ = false;
  double start_, last_shown_ = 0;
};

}  // namespace gradus
