// Runs of several optimizers, each with several learning rates, after they were made: which rate was best,
// tables, pictures.
#pragma once
#include <string>
#include <vector>

#include "src/train/lesson.h"
#include "src/train/step_recorder.h"

namespace gradus {

struct Trial {  // a run with one optimizer and one learning rate
  double rate;
  std::vector<double> losses, seconds;  // of each step
  ReportRow row;                        // its last loss is smooth(losses).back()
  int64_t state_bytes;                  // as predicted
};
struct Result {
  std::string name;
  std::vector<Trial> trials;    // by rate
  const Trial& best() const;    // the lowest last loss; one that is not a number is no candidate
  bool best_is_inside() const;  // neither the lowest nor the highest rate
};

const Result& result_of(const std::string& name, const std::vector<Result>& results);

// The checks of the best trials. `not_swept`: why those of the rates decide nothing.
void check_results(const std::vector<Result>& results, int64_t steps, const std::string& not_swept,
                   Report& report);

// A row for each optimizer, a column for each rate: the last losses.
void print_sweep(const std::vector<Result>& results);
// After how many steps, and how much time, each is where AdamW ends.
void print_race(const std::vector<Result>& results, int64_t parameters);
// The best trial of each: loss against steps, and against time.
void draw_race(const Lesson& lesson, const std::vector<Result>& results);

// The mean of each loss and the 19 before it, or as many as there are.
std::vector<double> smooth(const std::vector<double>& losses);

}  // namespace gradus
