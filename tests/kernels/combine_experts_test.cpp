// A mixture of experts: the combined outputs of the experts, and their gradients, against formulas in fp64.
#include "tests/kernels/experts_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L21_CombineExperts);

// One call's inputs, with tokens that are dropped and places that stay empty.
struct Combination {
  ExpertShape s;
  int64_t cols;
  DType T;
  Ids experts = some_experts(s, 1, true);
  Places places = places_of(s, experts);
  Buffer rows = Buffer::random(T, s.places() * cols, 2), weights = Buffer::random(T, s.choices(), 3),
         dy = Buffer::random(T, s.tokens() * cols, 4);

  void expect_forward(bool weighted) const {
    const std::vector<double> r = rows.values(), w = weights.values();
    Expected y{"y", {T}, std::vector<double>(s.tokens() * cols, 0.0)};
    y.error = y.value;
    for (int64_t i = 0; i < s.choices(); ++i)
      for (int64_t c = 0; places.slots[i] >= 0 && c < cols; ++c) {
        const double term = (weighted ? w[i] : 1) * r[places.slots[i] * cols + c];
        const int64_t at = i / s.chosen * cols + c;
        y.value[at] += term, y.error[at] += double(s.chosen + 2) * std::abs(term);
      }
    const TestedCall call{"combine_experts_fwd of " + text(s),
                          {y},
                          [&](const Ctx& ctx, const std::vector<Out>& out) {
                            table().combine_experts_fwd(ctx, s, cols, rows.in(), in(places.slots),
                                                        weighted ? weights.in() : CBuf{nullptr, T}, out[0]);
                          },
                          cost::combine_experts_fwd(s, cols, T)};
    ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
  }
  void expect_backward() const {
    const std::vector<double> r = rows.values(), w = weights.values(), g = dy.values();
    Expected drows{"drows", {T}, std::vector<double>(s.places() * cols, 0.0)},
        dweights{"dweights", {T}, std::vector<double>(s.choices(), 0.0)};
    drows.error = drows.value, dweights.error = dweights.value;
    for (int64_t i = 0; i < s.choices(); ++i)
      for (int64_t c = 0; places.slots[i] >= 0 && c < cols; ++c) {
        const int64_t row = places.slots[i] * cols + c, token = i / s.chosen * cols + c;
        drows.value[row] = w[i] * g[token], drows.error[row] = std::abs(drows.value[row]);
        dweights.value[i] += r[row] * g[token];
        dweights.error[i] += double(cols + 2) * std::abs(r[row] * g[token]);
      }
    const TestedCall call{"combine_experts_bwd of " + text(s),
                          {drows, dweights},
                          [&](const Ctx& ctx, const std::vector<Out>& out) {
                            // If only one output is wanted, the inputs of the other one are absent.
                            const bool of_rows = out[0].wanted(), of_weights = out[1].wanted();
                            table().combine_experts_bwd(
                                ctx, s, cols, of_weights ? rows.in() : CBuf{nullptr, T}, in(places.slots),
                                of_rows ? in(places.tokens) : CBuf{},
                                of_rows ? weights.in() : CBuf{nullptr, T}, dy.in(), out[0], out[1]);
                          },
                          cost::combine_experts_bwd(s, cols, T)};
    ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
  }
};

// All shapes with few columns; columns just below and above a warp (32), a GPU's block (256) and a CPU's
// chunk (1024).
std::vector<Combination> combinations() {
  std::vector<Combination> all;
  for (const DType T : float_types()) {
    for (const ExpertShape& s : expert_shapes()) all.push_back({s, 7, T});
    for (const int64_t cols : {0, 1, 31, 32, 33, 255, 257, 1023, 1025})
      all.push_back({{2, 5, 3, 2, 3}, cols, T});
  }
  return all;
}

TEST_P(L21_CombineExperts, RowsTimesWeights) {
  for (const Combination& c : combinations()) ASSERT_NO_FATAL_FAILURE(c.expect_forward(true));
}
TEST_P(L21_CombineExperts, WithoutWeightsEachIsOne) {
  for (const Combination& c : combinations()) ASSERT_NO_FATAL_FAILURE(c.expect_forward(false));
}
TEST_P(L21_CombineExperts, Backward) {
  for (const Combination& c : combinations()) ASSERT_NO_FATAL_FAILURE(c.expect_backward());
}

// The content of a place without a token must not reach any output.
TEST_P(L21_CombineExperts, EmptyPlacesAreNotRead) {
  const ExpertShape s{1, 3, 2, 1, 3};
  const Places places = places_of(s, {0, 0, 1});
  const double x = NAN;
  const Buffer rows(DType::F32, {1, 2, x, 3, x, x}), weights(DType::F32, {1, 1, 1}),
      dy(DType::F32, {4, 5, 6});
  Buffer y = Buffer::zeros(DType::F32, 3), drows(DType::F32, std::vector<double>(6, NAN)), dweights = y;
  TestCtx ctx;
  table().combine_experts_fwd(ctx, s, 1, rows.in(), in(places.slots), weights.in(), y.out(Write::Set));
  EXPECT_EQ(y.values(), (std::vector<double>{1, 2, 3}));
  table().combine_experts_bwd(ctx, s, 1, rows.in(), in(places.slots), in(places.tokens), weights.in(),
                              dy.in(), drows.out(Write::Set), dweights.out(Write::Set));
  EXPECT_EQ(drows.values(), (std::vector<double>{4, 5, 0, 6, 0, 0}));
  EXPECT_EQ(dweights.values(), (std::vector<double>{4, 10, 18}));
}

TEST_P(L21_CombineExperts, SlotsAndTokensThatDoNotMatchAreNamed) {
  if (on_cuda()) GTEST_SKIP() << "a GPU prints the message and then does no more work for this process";
  const ExpertShape s{1, 2, 2, 1, 2};  // 4 places
  const Buffer x = Buffer::random(DType::F32, 4, 1);
  Buffer y = x, z = x;
  TestCtx ctx;
  const auto forward = [&](const Ids& slots) {
    table().combine_experts_fwd(ctx, s, 1, x.in(), in(slots), x.in(), y.out(Write::Set));
  };
  const auto backward = [&](const Ids& slots, const Ids& tokens, Out drows, Out dweights) {
    table().combine_experts_bwd(ctx, s, 1, x.in(), in(slots), in(tokens), x.in(), x.in(), drows, dweights);
  };
  const Out drows = y.out(Write::Set), dweights = z.out(Write::Set), none{nullptr, DType::F32};
  const Ids slots{0, 2}, tokens{0, kElsewhere, 1, kElsewhere};
  backward(slots, tokens, drows, dweights);
  for (const int32_t bad : {-1, 4, INT32_MAX}) {
    expect_refused("slot " + std::to_string(bad), [&] { forward({0, bad}); });
    expect_refused("slot " + std::to_string(bad), [&] { backward({0, bad}, tokens, none, dweights); });
  }
  for (const int32_t bad : {-1, 2, INT32_MAX})
    expect_refused("token " + std::to_string(bad), [&] {
      backward(slots, {0, bad, 1, kElsewhere}, drows, none);
    });
  expect_refused("no such slot", [&] { backward(slots, {1, kElsewhere, 0, kElsewhere}, drows, none); });
}

}  // namespace
}  // namespace gradus
