#include "src/core/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "src/core/table.h"
#include "src/core/timing.h"

namespace gradus {

Progress::Progress(std::string what, int64_t total, std::FILE* out)
    : what_(std::move(what)),
      total_(std::max<int64_t>(total, 1)),
      out_(out),
      terminal_(isatty(fileno(out)) == 1),
      start_(seconds_now()) {}

void Progress::step(int64_t done, std::optional<double> loss) {
  done = std::clamp<int64_t>(done, 0, total_);
  if (terminal_) {
    const double now = seconds_now();
    if (now - last_shown_ < 0.2 && done < total_) return;
    last_shown_ = now;
    show(done, loss, now);
  } else if (const int64_t tenth = int64_t(10 * double(done) / double(total_)); tenth != last_tenth_) {
    last_tenth_ = tenth;
    show(done, loss, seconds_now());
  }
}

void Progress::show(int64_t done, std::optional<double> loss, double now) {
  const double left = (now - start_) * double(total_ - done) / double(std::max<int64_t>(done, 1));
  const std::string counts = std::to_string(done) + "/" + std::to_string(total_);
  std::string bar;
  if (terminal_) {
    bar.assign(size_t(30 * double(done) / double(total_)), '#');
    bar = " [" + bar + std::string(30 - bar.size(), ' ') + "]";
  }
  char shown[64] = "";
  if (loss) std::snprintf(shown, sizeof shown, "  loss %.4f", *loss);
  if (loss && std::isnan(*loss)) std::snprintf(shown, sizeof shown, "  loss nan");  // never -nan
  // On a terminal: returns to the start of the line and erases the rest of the old text (ESC [ K).
  std::fprintf(out_, "%s%s%s %s%s  %s left%s", terminal_ ? "\r" : "", what_.c_str(), bar.c_str(),
               counts.c_str(), shown, seconds_text(left).c_str(), terminal_ ? "\033[K" : "\n");
  std::fflush(out_);
  line_open_ = terminal_;
}

void Progress::done() {
  if (line_open_) std::fputc('\n', out_);
  line_open_ = false;
}

}  // namespace gradus
