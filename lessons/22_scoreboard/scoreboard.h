// The measurements of the scoreboard: a method, given as flags of the trainer, compared with a base run.
#pragma once
#include <string>
#include <vector>

#include "lessons/22_scoreboard/trainer.h"
#include "src/train/run_trace.h"

namespace gradus {

struct Measured {
  double seconds = NAN;  // per step, median; NaN on meta
  double speed = NAN;    // tokens per second, relative to the base run
  Usage at_peak = {};    // of the rank with the largest peak
  double memory = 0;     // peak(), relative to that of the base run
  int64_t peak() const;  // allocated bytes without the workspace, which is as large as a small model
  bool less_memory() const { return memory < 0.99; }  // by at least 1 %
  bool faster() const { return speed > 1.03; }        // by more than the noise of a shared machine
};

// Tokens per second of a method, relative to those of the base run. Each list has the seconds of the timed
// steps of one run, and their median counts; tokens are per step.
double relative_speed(const std::vector<double>& method, double method_tokens,
                      const std::vector<double>& base, double base_tokens);

class Scoreboard {
 public:
  // common: flags of all runs. steps: timed steps per method and per base run. trace: records all runs,
  // unless it is nullptr.
  Scoreboard(std::string common, int64_t steps, RunTrace* trace = nullptr);
  // The settings of the common flags and of `flags`, such as "--keep=sqrt --micro-batches=4".
  TrainSettings settings(const std::string& flags) const;
  // Runs on the current context's device. Steps of the two runs alternate (A B A B), so noise affects both.
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
