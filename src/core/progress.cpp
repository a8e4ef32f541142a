#include "src/core/progress.h"

#include <unistd.h>

#include <cstdio>

#include "src/core/timing.h"

namespace gradus {

Progress::Progress(std::string what, int64_t total)
    : what_(std::move(what)), total_(total), terminal_(isatty(STDERR_FILENO) == 1), start_(seconds_now()) {}

void Progress::step(int64_t done, double loss) {
  const double now = seconds_now(),
               left = (now - start_) * double(total_ - done) / double(std::max<int64_t>(done, 1));
  if (terminal_) {
    if (now - last_shown_ < 0.2 && done < total_) return;
    last_shown_ = now;
    const int filled = int(30 * done / std::max<int64_t>(total_, 1));
    std::fprintf(stderr, "\r%s [%.*s%*s] %ld/%ld  loss %.4f  %.0f s left \033[K", what_.c_str(), filled,
                 "##############################", 30 - filled, "", long(done), long(total_), loss, left);
    return;
  }
  const int64_t tenth = 10 * done / std::max<int64_t>(total_, 1);
  if (tenth == last_tenth_) return;
  last_tenth_ = tenth;
  std::fprintf(stderr, "%s %ld/%ld  loss %.4f  %.0f s left\n", what_.c_str(), long(done), long(total_), loss,
               left);
}

void Progress::done() {
  if (terminal_) std::fprintf(stderr, "\n");
}

}  // namespace gradus
