// The data of lesson 02: two spirals, drawn from a seed.
#include <gtest/gtest.h>

#include <cmath>

#include "lessons/02_autograd/spirals.h"

namespace gradus {
namespace {

TEST(L02_Spirals, AreThoseOfTheirSeed) {
  const Spirals one(64, 1), again(64, 1);
  EXPECT_EQ(one.x, again.x);
  for (const uint64_t seed : {0, 2, 3, 443}) EXPECT_NE(Spirals(64, seed).x, one.x) << seed;
  const Spirals longer(100, 1);
  EXPECT_TRUE(std::equal(one.x.begin(), one.x.end(), longer.x.begin())) << "more points are added at the end";
}

TEST(L02_Spirals, TakeTurnsAndAreEachOtherTurnedByHalfACircle) {
  const Spirals s(1000, 5);
  ASSERT_EQ(s.x.size(), 2000u);
  ASSERT_EQ(s.label.size(), 1000u);
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(s.label[size_t(i)], i % 2);
    // From the radius the angle follows; the noise, 0.02 of deviation, moves the point less than 0.12.
    const double sign = i % 2 ? -1 : 1, x = sign * s.x[size_t(2 * i)], y = sign * s.x[size_t(2 * i + 1)];
    double nearest = INFINITY;
    for (double t = 0.25; t <= 3; t += 0.001) {
      const double angle = 1.75 * t * M_PI / 1.5;
      nearest = std::min(nearest, std::hypot(x - t / 3 * std::cos(angle), y - t / 3 * std::sin(angle)));
    }
    ASSERT_LT(nearest, 0.12) << "point " << i;
  }
}

TEST(L02_Spirals, TheGradientsOfTheNetworkAreRightAndOnePercentWrongIsSeen) {
  EXPECT_LT(mlp_gradcheck(1), 1);
  EXPECT_GT(mlp_gradcheck(1.01), 1);
  EXPECT_GT(mlp_gradcheck(0.99), 1);
}

}  // namespace
}  // namespace gradus
