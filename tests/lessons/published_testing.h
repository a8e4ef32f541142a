// What every comparison with a published run must keep to.
#pragma once
#include <gtest/gtest.h>

#include "lessons/published/runs.h"

namespace gradus {

// Its rows add up to what is named, and that is the figure's own difference, theirs less ours.
inline void expect_taken_apart(const Gap& gap, const PublishedFigure& figure) {
  int64_t sum = 0;
  for (const Difference& d : gap.differences) sum += d.bytes;
  EXPECT_EQ(sum, gap.named);
  EXPECT_NEAR(double(gap.named), (figure.theirs - figure.ours) * (figure.unit == "GiB" ? 0x1p30 : 0x1p20), 1);
}

}  // namespace gradus
