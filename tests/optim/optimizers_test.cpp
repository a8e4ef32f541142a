// The effect of clipping and of the learning-rate schedule.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/devices.h"
#include "tests/optim/optim_testing.h"

namespace gradus {
namespace {

struct L03_OptimContract : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
};
ON_DEVICES_WITH_DATA(L03_OptimContract);

// The norm is taken over all parameters that train and have a gradient.
TEST_P(L03_OptimContract, TheNormIsOfWhatIsUpdated) {
  Parameters parameters;
  const std::pair<const char*, std::vector<double>> gradients[] = {
      {"a", {3, -4}}, {"b", {12}}, {"frozen", {100}}, {"empty", {100}}};
  for (const auto& [name, g] : gradients) set_gradient(parameters.add(name, {int64_t(g.size())}, {}), g);
  parameters.set_trainable(parameters.find("frozen"), false);
  parameters.find("empty").leaf.zero();
  Sgd optimizer(parameters);
  for (const auto& [most, factor] : {std::pair(6.5, 0.5), {26.0, 1.0}, {0.0, 1.0}}) {
    optimizer.clip_grad_norm(most);
    EXPECT_FLOAT_EQ(optimizer.scalars().grad_norm, 13);
    EXPECT_NEAR(optimizer.scalars().clip_factor, factor, 2e-7) << "at most " << most;
  }
}

// Clipping does not scale the decay, which only matrices have; a factor is used for one update; the last
// call's factor is used; gradients do not change.
TEST_P(L03_OptimContract, ClippingScalesGradientsAndNothingElse) {
  Parameters parameters;
  Parameter &w = parameters.add("w", {1, 2}, {}), &b = parameters.add("b", {1}, {});
  copy_from_host(w.value, {8, -16});
  copy_from_host(b.value, {1});
  set_gradient<double>(w, {3, 4});
  set_gradient<double>(b, {12});
  Sgd sgd(parameters, {.weight_decay = 0.5f});
  sgd.clip_grad_norm(1), sgd.clip_grad_norm(6.5);
  sgd.step(0.5);  // w - (g/2 + w/2)/2
  const std::vector<double> once = to_host<double>(w.value);
  EXPECT_NEAR(once[0], 8 - 0.5 * (1.5 + 4), 1e-5);
  EXPECT_NEAR(once[1], -16 - 0.5 * (2 - 8), 1e-5);
  EXPECT_NEAR(item(b.value), 1 - 0.5 * 6, 1e-5);
  EXPECT_EQ(to_host<double>(w.leaf.grad), (std::vector<double>{3, 4}));
  sgd.step(0.5);
  EXPECT_NEAR(to_host<double>(w.value)[0], once[0] - 0.5 * (3 + once[0] / 2), 1e-5);
}

TEST(L03_OptimContractAlone, TheScheduleAtItsCorners) {
  for (const int64_t warmup : {0, 1, 4}) {
    // (s + 1) / warmup of the peak; the first cosine step also has the peak.
    for (int64_t s = 0; s < warmup; ++s)
      EXPECT_DOUBLE_EQ(warmup_cosine(s, warmup, 20, 3, 1), 3.0 * double(s + 1) / double(warmup));
    for (int64_t s = warmup; s < 20; ++s)
      EXPECT_DOUBLE_EQ(warmup_cosine(s, warmup, 20, 3, 1),
                       2 + std::cos(std::acos(-1.0) * double(s - warmup) / double(20 - warmup)));
    for (const int64_t s : {20, 21, 1000}) EXPECT_EQ(warmup_cosine(s, warmup, 20, 3, 1), 1);
  }
  EXPECT_EQ(warmup_cosine(2, 4, 4, 3, 1), 2.25);
  EXPECT_EQ(warmup_cosine(3, 4, 4, 3, 1), 3);
  EXPECT_EQ(warmup_cosine(4, 4, 4, 3, 1), 1) << "no steps are left for the cosine";
  EXPECT_EQ(warmup_cosine(6, 9, 4, 9, 1), 7) << "a run that ends within the warm-up";
  EXPECT_EQ(warmup_cosine(0, 0, 0, 3, 1), 1);
}

}  // namespace
}  // namespace gradus
