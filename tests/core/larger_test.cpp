// The larger of two numbers, or NaN.
#include "src/core/larger.h"

#include <gtest/gtest.h>

namespace gradus {
namespace {

TEST(L11_Larger, NaNIsTheWorst) {
  EXPECT_EQ(larger(1, 2), 2);
  EXPECT_EQ(larger(2, 1), 2);
  EXPECT_EQ(larger(-INFINITY, -1), -1);
  for (const double x : {0.0, double(INFINITY), -double(INFINITY)}) {
    EXPECT_TRUE(std::isnan(larger(x, NAN))) << x;
    EXPECT_TRUE(std::isnan(larger(NAN, x))) << x;
  }
}

}  // namespace
}  // namespace gradus
