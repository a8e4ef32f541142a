// Cross-entropy with targets that do not count, and with a count of more than one call's, against the
// formula.
#include "tests/kernels/kernel_contract.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L07_Kernels);

struct Case {
  DType T;
  RowShape s;
  double count;    // 0: none is given
  int64_t one_in;  // so many targets is one that counts, of 1 all
  SharedVector<int32_t> ids;
  Buffer logits, counts;
  Case(DType T, RowShape s, double count, int64_t one_in)
      : T(T),
        s(s),
        count(count),
        one_in(one_in),
        ids(s.rows),
        logits(Buffer::random(T, s.rows * s.cols, 1, 3)),
        counts(stat(T), {count}) {
    for (int64_t r = 0; r < s.rows; ++r) ids[r] = r % one_in == 0 ? int32_t((r * 7) % s.cols) : -1;
  }
  CBuf targets() const { return {ids.data(), DType::I32}; }
  CBuf given() const { return count != 0 ? counts.in() : CBuf{}; }
  double divisor() const { return count != 0 ? counts.values()[0] : double((s.rows + one_in - 1) / one_in); }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType T : float_types())
    for (const RowShape s : {RowShape{1, 1}, {7, 5}, {33, 257}, {257, 3}, {1025, 2}})
      for (const auto& [count, one_in] :
           {std::pair(0.0, int64_t(1)), {0.0, 3}, {12.5, 3}, {1.0, 2}, {100.0, 1}, {40.0, 2000}})
        all.emplace_back(T, s, count, one_in);
  return all;
}

TEST_P(L07_Kernels, CrossEntropyOfTargetsThatCount) {
  for (const Case& c : cases()) {
    const std::vector<double> x = c.logits.values();
    Expected loss{"loss", {stat(c.T)}, {0}, {0}}, lse{"lse", {stat(c.T)}, {}};
    for (int64_t r = 0; r < c.s.rows; ++r) {
      double sum = 0;
      for (int64_t k = 0; k < c.s.cols; ++k) sum += std::exp(x[r * c.s.cols + k]);
      lse.value.push_back(std::log(sum));
      lse.error.push_back(double(c.s.cols) + 32);
      if (c.ids[r] < 0) continue;
      const double value = lse.value[r] - x[r * c.s.cols + c.ids[r]];
      loss.value[0] += value / c.divisor();
      loss.error[0] += (lse.error[r] + 16 * std::abs(value)) / c.divisor();
    }
    const KernelCall fwd{"cross_entropy_fwd",
                         {loss, lse},
                         [&](const Ctx& ctx, const std::vector<Out>& out) {
                           table().cross_entropy_fwd(ctx, c.s, c.logits.in(), c.targets(), c.given(), out[0],
                                                     out[1]);
                         },
                         cost::cross_entropy_fwd(c.s, c.T)};
    ASSERT_NO_FATAL_FAILURE(expect_contract(fwd, some_ways(fwd.outputs)));
  }
}

TEST_P(L07_Kernels, GradientsOfTargetsThatCount) {
  for (Case& c : cases()) {
    const Buffer lse(stat(c.T), std::vector<double>(c.s.rows, 4.1)), dloss(stat(c.T), {3.7});
    const std::vector<double> x = c.logits.values();
    const double factor = dloss.values()[0] / c.divisor(), shift = lse.values()[0];
    Expected dx{"logits", {c.T}, {}};
    for (int64_t i = 0; i < c.s.rows * c.s.cols; ++i) {
      const int32_t target = c.ids[i / c.s.cols];
      const double p = std::exp(x[i] - shift), d = target < 0 ? 0 : factor * (p - (target == i % c.s.cols));
      dx.value.push_back(d);
      dx.error.push_back(target < 0 ? 0 : factor * p * (8 + std::abs(x[i] - shift)) + 4 * std::abs(d));
    }
    TestCtx ctx;
    const OpenMpThreads three(3);
    table().cross_entropy_bwd_inplace(ctx, c.s, c.targets(), c.given(), lse.in(), dloss.in(),
                                      c.logits.out(Write::Set));
    ASSERT_NO_FATAL_FAILURE(
        expect_written("cross_entropy_bwd_inplace", dx, c.T, Write::Set, {}, c.logits.values()));
  }
}

// As PyTorch has it; with a count, the loss is 0.
TEST_P(L07_Kernels, WhereNoTargetCountsTheMeanIsNotANumber) {
  const RowShape s{3, 4};
  const Buffer x = Buffer::random(DType::F32, 12, 1), five(DType::F32, {5});
  const SharedVector<int32_t> none(3, -1);
  const CBuf targets{none.data(), DType::I32};
  for (const bool given : {false, true}) {
    Buffer loss(DType::F32, {7}), lse = Buffer::zeros(DType::F32, 3),
                                  logits = Buffer::random(DType::F32, 12, 1);
    TestCtx ctx(cost::cross_entropy_fwd(s, DType::F32));
    const CBuf count = given ? five.in() : CBuf{};
    table().cross_entropy_fwd(ctx, s, x.in(), targets, count, loss.out(Write::Set), lse.out(Write::Set));
    EXPECT_EQ(std::isnan(loss.values()[0]), !given);
    if (given) {
      EXPECT_EQ(loss.values()[0], 0);
    }
    table().cross_entropy_bwd_inplace(ctx, s, targets, count, lse.in(), five.in(), logits.out(Write::Set));
    EXPECT_EQ(logits.values(), std::vector<double>(12, 0.0));
  }
}

}  // namespace
}  // namespace gradus
