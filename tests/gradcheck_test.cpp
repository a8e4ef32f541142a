// What a gradient check allows, element by element, and what it says.
#include "src/autograd/gradcheck.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/ops/ops.h"
#include "src/tensor/context.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using In = const std::vector<Tensor>&;
struct L02_GradcheckContract : ::testing::Test {
  Context context{"cpu", 5};
  Tensor constant(const std::vector<double>& values, const Shape& shape) {
    return from_host(context.device, values, shape, DType::F64, Kind::Data, "w");
  }
};

// y = 0 x0 + 4 x1: the mean square of the two gradients is 8.
TEST_F(L02_GradcheckContract, TheRootMeanSquareIsThatOfTheInput) {
  const auto f = [&](In x) {
    return add(linear(x[0], constant({0, 4}, {1, 2})), linear(x[1], constant({1000}, {1, 1})));
  };
  const std::vector<GradcheckInput> inputs{{{1, 2}, {0.5, -1}}, {{1, 1}, {2}}};
  const GradcheckResult result = gradcheck(f, inputs, 1, 1 + 1e-5);
  EXPECT_NEAR(result.worst, 10 * 4 / (4 + std::sqrt(8)), 1e-2);
  EXPECT_NE(result.where.find("input 0 [1,2], element 1: expected "), std::string::npos) << result.where;
  EXPECT_NE(result.where.find(" (finite difference), got "), std::string::npos) << result.where;
  const GradcheckResult second = gradcheck(f, inputs, 1, 1 + 1e-5, 1);
  EXPECT_NEAR(second.worst, 10 * 0.5, 1e-2);
  EXPECT_NE(second.where.find("input 1 [1,1], element 0"), std::string::npos) << second.where;
}

TEST_F(L02_GradcheckContract, BelowOnePasses) {
  EXPECT_TRUE(GradcheckResult().passed());
  EXPECT_TRUE((GradcheckResult{.worst = 0.99, .where = ""}).passed());
  EXPECT_FALSE((GradcheckResult{.worst = 1, .where = ""}).passed());
  EXPECT_FALSE((GradcheckResult{.worst = INFINITY, .where = ""}).passed());
}

TEST_F(L02_GradcheckContract, OneBadElementFailsWhereverItIs) {
  for (int bad = 0; bad < 3; ++bad) {  // its gradient is not a number: inf - inf
    std::vector<double> values{1, 2, 3};
    values[bad] = NAN;
    const GradcheckResult result = gradcheck([](In x) { return tanh(x[0]); }, {{{3}, values}});
    EXPECT_FALSE(result.passed()) << bad;
  }
}

TEST_F(L02_GradcheckContract, AnInputThatDoesNotTrainIsNotCompared) {
  const auto f = [](In x) { return add(scale(x[0], 2), x[1].detach()); };
  const std::vector<double> v{1};
  expect_refused("gradcheck: input 1 received no gradient", [&] { gradcheck(f, {{{1}, v}, {{1}, v}}); });
  EXPECT_TRUE(gradcheck(f, {{{1}, v}, {{1}, v, false}}).passed());
  EXPECT_TRUE(GradcheckInput().trains);
}

}  // namespace
}  // namespace gradus
