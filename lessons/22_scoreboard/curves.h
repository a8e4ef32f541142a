// Expected loss curves of some runs of the course, which `make curves` has measured with three seeds.
#pragma once
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

// The mean loss over an interval of steps, which begins after the previous entry's step and ends with `step`:
// the mean over the seeds, and the smallest and the largest value of a seed.
struct ExpectedLoss {
  int64_t step;
  double mean, least, most;
};
// Each line of the file is one entry in JSON, in the order of the steps. Errors name the file.
std::vector<ExpectedLoss> read_expected(const std::string& path);

// compared: the intervals that the losses cover completely; losses[0] is that of step first + 1. outside:
// those of them whose mean is outside [least - margin, most + margin]; the margin is most - least, but at
// least 2 % of the mean.
struct CurveVerdict {
  int64_t compared = 0, outside = 0;
};
CurveVerdict compare_curve(const std::vector<double>& losses, int64_t first,
                           const std::vector<ExpectedLoss>& expected);
// The checks of a run: its last loss, and its intervals, of which the first one ends at step `first_end`.
void check_last_loss(double loss, Report& report);
void check_curve(const CurveVerdict& verdict, int64_t first_end, Report& report);
// Draws the mean losses of the run, and the expected range.
void draw_curve(const std::vector<double>& losses, int64_t first, const std::vector<ExpectedLoss>& expected,
                const std::string& path);

}  // namespace gradus
