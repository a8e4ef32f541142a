// The gradients of attention_flash compared with finite differences in fp64: for every element if there are
// few queries, along random directions if there are many.
#include <gtest/gtest.h>

#include <iostream>

#include "src/autograd/gradcheck.h"
#include "tests/ops/attention_testing.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
double dot(const Values& a, const Values& b) {
  long double sum = 0;  // the difference of two such sums is divided by 2e-5
  for (size_t i = 0; i < a.size(); ++i) sum += (long double)a[i] * b[i];
  return double(sum);
}
double norm(const Values& x) { return std::sqrt(dot(x, x)); }

// q, k and v as three inputs, so that a test can make a single one wrong.
Tensor of_parts(const AttentionCase& c, const std::vector<Tensor>& x) {
  return attention_flash(concatenate(x), c.heads, c.mask, 0);
}
std::vector<GradcheckInput> parts_of(const AttentionCase& c) {
  const Values qkv = exact_numbers(c.qkv().numel(), kQkv);
  std::vector<GradcheckInput> inputs;
  for (int part = 0; part < 3; ++part) inputs.push_back({{c.B, c.T, c.columns(part)}, part_of(c, qkv, part)});
  return inputs;
}

// With T = 1 the weight of the only key is always 1, so dq and dk are 0, and a 1 % error cannot be seen.
void expect_every_element(const AttentionCase& c, double& worst) {
  const auto f = [&](const std::vector<Tensor>& x) { return of_parts(c, x); };
  const std::vector<GradcheckInput> inputs = parts_of(c);
  const GradcheckResult right = gradcheck(f, inputs);
  EXPECT_TRUE(right.passed()) << c << ": " << right.where;
  worst = std::max(worst, right.worst);
  for (int part = c.T == 1 ? 2 : 0; part < 3; ++part) {
    std::vector<GradcheckInput> one = inputs;
    for (int i = 0; i < 3; ++i) one[i].trains = i == part;
    EXPECT_FALSE(gradcheck(f, one, 1, 1.01, part).passed())
        << c << ": a 1 % wrong gradient of " << kParts[part] << " passed";
  }
}

TEST(L15_FlashGradients, OfEveryElementAreTheFiniteDifferences) {
  Context context("cpu", 5);
  double worst = 0;
  for (const AttentionCase& c : attention_cases({1})) expect_every_element(c, worst);
  for (const int64_t T : {63, 64, 65})
    expect_every_element({T, 4, 1, T == 64 ? Mask::None : Mask::Causal}, worst);
  expect_every_element({5, 32, {2, 1}}, worst), expect_every_element({5, 64, {8, 1}, Mask::None}, worst);
  expect_every_element({4, 80, {4, 2}}, worst), expect_every_element({3, 128, {8, 1}}, worst);
  RecordProperty("error / allowed error, %", std::to_string(100 * worst));
  std::cout << "error / allowed error: " << 100 * worst << " %\n";
}

// Slopes of L = <dy, y> along random directions u, each of which changes only q, k or v: by differences, and
// from the tape's gradient, <dqkv, u>.
class Slopes {
 public:
  explicit Slopes(const AttentionCase& c)
      : c_(c),
        qkv_(exact_numbers(c.qkv().numel(), kQkv)),
        dy_(exact_numbers(c.y().numel(), kDy)),
        right_(run_attention("cpu", DType::F64, attention_flash, c)) {
    for (int part = 0; part < 3; ++part)
      for (uint64_t draw = 0; draw < (c.T == kLong ? 1 : 2); ++draw) add(part, draw);
  }
  const Values& gradient() const { return right_.dqkv; }

  // The largest error / allowed error of a gradient. Allowed: a millionth of the slope and of the norm of the
  // part's gradient (the typical size of a slope along a random direction), and the rounding of y, 8 u per
  // element.
  double worst_of(const Values& gradient) const {
    double worst = 0;
    Values rounded;
    for (size_t i = 0; i < dy_.size(); ++i) rounded.push_back(8 * 0x1p-53 * dy_[i] * right_.y[i]);
    for (const Direction& d : directions_) {
      const double allowed =
          1e-6 * (std::abs(d.slope) + norm(part_of(c_, right_.dqkv, d.part))) + norm(rounded) / kStep;
      const double share = std::abs(dot(gradient, d.u) - d.slope) / allowed;
      if (!(share <= worst)) worst = std::isfinite(share) ? share : INFINITY;
    }
    return worst;
  }

 private:
  static constexpr double kStep = 1e-5;
  struct Direction {
    int part;
    Values u;  // 0 in the other parts
    double slope;
  };
  void add(int part, uint64_t draw) {
    Rng rng(16, 3 * draw + part);
    const int64_t row = c_.qkv()[2], first = c_.first_column(part);
    Values u(qkv_.size());
    for (size_t i = 0; i < u.size(); ++i)
      if (int64_t(i) % row >= first && int64_t(i) % row < first + c_.columns(part)) u[i] = rng.normal();
    directions_.push_back({part, u, (loss(u, kStep) - loss(u, -kStep)) / (2 * kStep)});
  }
  double loss(const Values& u, double step) const {
    Values x = qkv_;
    for (size_t i = 0; i < x.size(); ++i) x[i] += step * u[i];
    Context context("cpu", 5);
    const Tensor qkv = from_host(context.device, x, c_.qkv(), DType::F64, Kind::Temporary, "qkv");
    return dot(to_host<double>(attention_flash(qkv, c_.heads, c_.mask, 0)), dy_);
  }

  AttentionCase c_;
  Values qkv_, dy_;
  CaseRun right_;
  std::vector<Direction> directions_;
};

// The gradient passes; a gradient with one part, or one token of one part, that is 1 % too large fails.
void expect_slopes(const AttentionCase& c, double& worst) {
  const Slopes slopes(c);
  const double right = slopes.worst_of(slopes.gradient());
  EXPECT_LT(right, 1) << c;
  worst = std::max(worst, right);
  const int64_t row = c.qkv()[2];
  const auto wrong = [&](int part, int64_t token) {
    Values gradient = slopes.gradient();
    for (int64_t i = 0; i < int64_t(gradient.size()); ++i)
      if (i % row >= c.first_column(part) && i % row < c.first_column(part) + c.columns(part) &&
          (token < 0 || i / row == token))
        gradient[i] *= 1.01;
    return slopes.worst_of(gradient);
  };
  for (int part = c.T == 1 ? 2 : 0; part < 3; ++part) {
    EXPECT_GT(wrong(part, -1), 1) << c << ": a 1 % wrong gradient of " << kParts[part] << " passed";
    EXPECT_GT(wrong(part, c.T / 2), 1)
        << c << ": a middle token that is 1 % too large passed in d" << kParts[part];
  }
}

TEST(L15_FlashGradients, AlongRandomDirectionsOfQAndKAndVAreTheFiniteDifferences) {
  double worst = 0;
  for (const AttentionCase& c : attention_cases({1, 63, 64, 65})) expect_slopes(c, worst);
  RecordProperty("error / allowed error, %", std::to_string(100 * worst));
  std::cout << "error / allowed error: " << 100 * worst << " %\n";
}

TEST(L15_FlashGradients, Of8191TokensAreTheFiniteDifferences) {
  double worst = 0;
  expect_slopes({kLong, 32, {2, 1}}, worst);
  RecordProperty("error / allowed error, %", std::to_string(100 * worst));
  std::cout << "error / allowed error: " << 100 * worst << " %\n";
}

}  // namespace
}  // namespace gradus
