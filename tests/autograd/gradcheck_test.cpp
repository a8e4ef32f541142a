// The error that a gradient check allows per element, and its messages.
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

// y = 2 x, whose gradient is 0.01 too large in element `bad`.
Tensor doubled_with_a_mistake(const Tensor& x, int bad) {
  Tensor y = empty_like(x, "doubled");
  be(x).scale(ctx(x, {}), x.numel(), x.in(), y.set(), 2);
  return record("doubled", {x}, {}, y, [bad](const Node&, const Tensor& dy, Grads& dx) {
    std::vector<double> g = to_host<double>(dy);
    for (double& v : g) v *= 2;
    g[bad] += 0.01;
    dx.pass(0, from_host(dy.device(), g, dy.shape(), dy.dtype(), Kind::Temporary, "g"));
  });
}
TEST_F(L02_GradcheckContract, EveryElementOfEveryInputIsCompared) {
  for (int bad = 0; bad < 6; ++bad)
    for (const int input : {0, 1}) {
      const auto f = [=](In x) { return add(doubled_with_a_mistake(x[input], bad), x[1 - input]); };
      const std::vector<double> v{1, -1, 0.5, 2, 3, 0};
      const GradcheckResult result = gradcheck(f, {{{2, 3}, v}, {{2, 3}, v}});
      EXPECT_FALSE(result.passed());
      const std::string place = "input " + std::to_string(input) + " [2,3], element " + std::to_string(bad);
      EXPECT_EQ(result.where.find(place + ": expected "), 0u) << place << " in: " << result.where;
    }
}

// The tape makes the first call, the finite differences make the others.
TEST_F(L02_GradcheckContract, NothingAgreesWithADifferenceThatIsNotFinite) {
  for (const double bad : {double(NAN), double(INFINITY)}) {
    int calls = 0;
    const auto f = [&](In x) { return scale(x[0], calls++ == 3 ? bad : 1); };
    EXPECT_EQ(gradcheck(f, {{{3}, {1, 2, 3}}}).worst, INFINITY);
  }
}

TEST_F(L02_GradcheckContract, TheSeedIsThatOfTheUpstreamGradients) {
  const auto f = [](In x) { return tanh(x[0]); };
  const std::vector<GradcheckInput> inputs{{{3}, {1, -0.5, 2}}};
  const auto where = [&](uint64_t seed) { return gradcheck(f, inputs, seed, 1.5).where; };
  EXPECT_EQ(where(1), where(1));
  EXPECT_NE(where(1), where(2));
  EXPECT_EQ(gradcheck(f, inputs).where, gradcheck(f, inputs, 1, 1, 0).where) << "the defaults";
  EXPECT_NE(gradcheck(f, inputs).where, gradcheck(f, inputs, 2, 1, 0).where);
}

}  // namespace
}  // namespace gradus
