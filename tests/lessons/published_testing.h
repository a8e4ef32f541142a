// Requirements for every comparison with a published run.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lessons/published/runs.h"

namespace gradus {

// All figures are in MiB, the published ones as given, and the reproduced ones within 100 MiB of them.
inline void expect_figures(const PublishedRuns& runs, const std::vector<double>& published) {
  ASSERT_EQ(runs.figures.size(), published.size());
  for (size_t i = 0; i < published.size(); ++i) {
    EXPECT_EQ(runs.figures[i].unit, "MiB");
    EXPECT_EQ(runs.figures[i].published, published[i]);
    EXPECT_NEAR(runs.figures[i].reproduced, published[i], 100) << runs.figures[i].figure;
  }
}

inline void expect_rows_add_up(const Gap& gap) {
  int64_t sum = 0;
  for (const Difference& d : gap.differences) sum += d.bytes;
  EXPECT_EQ(sum, gap.named);
  EXPECT_EQ(gap.unexplained, gap.whole - gap.named);
}
// The sum of the named differences is the figure's difference, reproduced - ours.
inline void expect_taken_apart(const Gap& gap, const PublishedFigure& figure) {
  expect_rows_add_up(gap);
  EXPECT_NEAR(double(gap.named), (figure.reproduced - figure.ours) * (figure.unit == "GiB" ? 0x1p30 : 0x1p20),
              1);
}
inline void expect_explained(const Gap& gap) {
  EXPECT_LE(std::abs(double(gap.unexplained)), 0.03 * double(gap.whole));
}

}  // namespace gradus
