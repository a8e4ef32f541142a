// The scoreboard's measurements: a method, as flags of the trainer, compared with another run.
#pragma once
#include <string>
#include <vector>

#include "lessons/22_scoreboard/trainer.h"
#include "src/train/run_trace.h"

namespace gradus {

struct Measured {
  double seconds = NAN;  // per step: the median; NaN on meta
  double speed = NAN;    // tokens per second, relative to the run that it is compared with
  Usage at_peak = {};    // of the rank with most
  double memory = 0;     // peak(), relative to that run's
  int64_t peak() const;  // without the workspace of products, which is as large as a small model
  bool less_memory() const { return memory < 0.99; }  // by 1 % at least
  bool faster() const { return speed > 1.03; }        // by more than the noise of a shared machine
};

// Tokens per second of a method, relative to those of a base run, by the median step of each. tokens: per
// step.
double relative_speed(const std::vector<double>& method, double method_tokens,
                      const std::vector<double>& base, double base_tokens);

class Scoreboard {
 public:
  // common: flags of all runs. steps: timed per method, and per run that it is compared with. trace: of all
  // their contexts; may be nullptr.
  Scoreboard(std::string common, int64_t steps, RunTrace* trace = nullptr);
  // Of flags such as "--keep=sqrt --micro-batches=4" and the common ones.
  TrainSettings settings(const std::string& flags) const;
  // On the current context's device. Both runs alternate (A B A B), so both meet the same noise.
  Measured compare(const std::string& method, const std::string& base) const;
  const Text& text() const { return text_; }

 private:
  struct Run;
  struct Timed {
    const TrainSettings& settings;
    std::vector<double> seconds = {};
    Usage at_peak = {};
  };
  void time_on_one_device(Timed& method, Timed& base) const;
  void time_on_ranks(Timed& method, Timed& base) const;
  const std::string common_;
  const int64_t steps_;
  const Text text_;
  RunTrace* const trace_;
};

}  // namespace gradus
