// Evaluates training runs of several optimizers, each with several learning rates: the best rate, the spread
// over seeds, tables, pictures.
#pragma once
#include <string>
#include <vector>

#include "src/train/lesson.h"
#include "src/train/step_recorder.h"

namespace gradus {

struct Trial {  // a run with one optimizer, one learning rate and one seed
  double rate;
  std::vector<double> losses, seconds;  // of each step
  ReportRow row;                        // its last loss is smooth(losses).back()
  int64_t state_bytes;                  // as predicted
};
struct Spread {
  double mean, least, most;  // all NaN if one of the values is
};
struct Result {
  std::string name;
  std::vector<Trial> trials;        // of the first seed, by rate
  std::vector<Trial> repeats = {};  // the best rate with the other seeds
  const Trial& best() const;        // of the first seed, the lowest last loss that is a number
  bool best_is_inside() const;      // neither the lowest nor the highest rate
  Spread last_losses() const;       // of the best rate, over all seeds
  // The best trial's row with the time of the fastest: all do the same work, and some were disturbed.
  ReportRow table_row() const;
};

const Result& result_of(const std::string& name, const std::vector<Result>& results);

// The checks of the best trials. `not_swept`: why those that compare rates or optimizers are skipped.
void check_results(const std::vector<Result>& results, int64_t steps, const std::string& not_swept,
                   Report& report);

// A row for each optimizer, a column for each rate: the last losses.
void print_sweep(const std::vector<Result>& results);
// After how many steps, and how much time, each optimizer reaches AdamW's last loss.
void print_race(const std::vector<Result>& results, int64_t parameters);
// Loss against steps, and against time, of each optimizer's best trial. `warmup`: steps.
void draw_race(const Lesson& lesson, const std::vector<Result>& results, int64_t warmup);

// The mean of each loss and the kWindow - 1 before it, or as many as there are.
constexpr int64_t kWindow = 20;
std::vector<double> smooth(const std::vector<double>& losses);

}  // namespace gradus
