// The scoreboard: methods, each as flags of the trainer, measured against the plain run.
#pragma once
#include <string>
#include <vector>

#include "lessons/22_scoreboard/trainer.h"

namespace gradus {

enum class Claim : uint8_t { None, No, Yes, Maybe };  // None: nothing is published

struct Method {
  std::string name, flags;
  Claim faster, less_memory;  // as published: reference-numbers, source 003
  bool saves;                 // whether it needs less memory than `against`, as this course explains it
  std::string against;        // flags of the run that it is compared with; "": the plain run
  std::string why = "";       // where it differs from what is published, or is none of it
};
const std::vector<Method>& published_methods();  // the ten of the table
const std::vector<Method>& course_methods();     // what the course adds, and combinations

struct Measured {
  double seconds = NAN;  // of a step: the median; NaN on meta
  double speed = NAN;    // tokens per second, of the run that it is compared with: 1
  int64_t peak = 0, reserved = 0;
  double memory = 0;  // the peak, of the run that it is compared with: 1
};

// The settings of flags such as "--keep=sqrt --micro-batches=4", the common ones first.
class Scoreboard {
 public:
  // common: flags of all runs. steps: that are timed, of each method and alternating with it of the run that
  // it is compared with.
  Scoreboard(std::string common, int64_t steps);
  TrainSettings settings(const std::string& flags) const;
  Measured measure(const Method& method);
  const Text& text() const { return text_; }

 private:
  struct Run;
  Measured alternate(const TrainSettings& method, const TrainSettings& against) const;
  Measured on_ranks(const TrainSettings& method, const TrainSettings& against) const;
  const std::string common_;
  const int64_t steps_;
  const Text text_;
};

std::string text_of(Claim claim);
void print_methods(const std::vector<Method>& methods, const std::vector<Measured>& measured);
// Memory against time, each method a point, and the front of those that no other beats in both.
void draw_methods(const std::vector<Method>& methods, const std::vector<Measured>& measured,
                  const std::string& path);

}  // namespace gradus
