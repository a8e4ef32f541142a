// The optimizers against formulas in fp64.
#include "tests/kernels/updates_formula.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L02_Updates);
ON_EVERY_DEVICE(L03_Updates);
ON_EVERY_DEVICE(L06_Sgd);

// A parameter with its gradient, states and master copy.
struct Update {
  Update(DType T, DType grad, DType m, DType v, int64_t n, bool decay)
      : n(n),
        decay(decay),
        value(Buffer::random(T, n, 1)),
        grad(Buffer::random(grad, n, 2)),
        m(Buffer::random(m, n, 3, 0.1)),
        v(Buffer(v, positive(n))),
        master(Buffer::random(DType::F32, n, 4)) {}
  static std::vector<double> positive(int64_t n) {
    std::vector<double> v(n);
    for (int64_t i = 0; i < n; ++i) v[i] = 0.01 + 0.01 * double(i % 7);
    return v;
  }
  ParamUpdate item(bool second_moment) {
    const auto out = [](Buffer& b, bool wanted) { return wanted ? b.out(Write::Set) : Out{}; };
    return {n,    out(value, true), grad.in(), out(m, has_m), out(v, second_moment), out(master, has_master),
            decay};
  }
  // The buffer that the kernel updates: with a master copy, the value is only its rounding.
  const Buffer& updated() const { return has_master ? master : value; }
  int64_t n;
  bool decay, has_m = true, has_master = false;
  Buffer value, grad, m, v, master;
};

// Every mix of dtypes, with and without master copy, decay and (SGD) momentum, at sizes just below and above
// the elements of a block at a time (1,024) and in all (4,096). More parameters than one launch takes (28).
std::vector<Update> every_mix() {
  constexpr int64_t kSizes[] = {1, 4097, 0, 257, 1025, 7};
  std::vector<Update> all;
  for (const DType T : float_types())
    for (const DType grad : t_or_fp32(T))
      for (const DType m : t_or_fp32(T))
        for (const DType v : t_or_fp32(T))
          for (const bool decay : {false, true})
            for (const bool master : {false, true}) {
              if (master && T == DType::F64) continue;
              all.emplace_back(T, grad, m, v, kSizes[all.size() % std::size(kSizes)], decay);
              all.back().has_master = master;
            }
  if (turn.table == &cpu_backend())
    all.emplace_back(DType::BF16, DType::F32, DType::F32, DType::F32, 40'003, true);
  return all;
}

// All in one list, for two updates: the second must recompute the numbers that the parameters share.
void expect_updates(const char* op, std::vector<Update> all, bool second_moment,
                    const std::function<void(const Ctx&, ParamList)>& kernel,
                    const std::function<AfterUpdate(const Update&, double)>& formula) {
  TestCtx ctx;
  const OpenMpThreads three(3);
  ctx.scalars().learning_rate = float(kRate), ctx.scalars().clip_factor = float(kClip);
  std::vector<ParamUpdate> items;
  for (Update& u : all) items.push_back(u.item(second_moment));
  for (const int step : {1, 300}) {
    std::vector<AfterUpdate> after;
    std::vector<std::vector<double>> unused_m;
    for (const Update& u : all) after.push_back(formula(u, step)), unused_m.push_back(u.m.values());
    ctx.scalars().updates = step;
    kernel(ctx, {int64_t(items.size()), items.data()});
    for (size_t k = 0; k < all.size(); ++k) {
      const Update& u = all[k];
      const auto expect = [&](const Expected& e, const Buffer& b) {
        expect_written(op + (" of parameter " + std::to_string(k)), e, b.type(), Write::Set, {}, b.values());
      };
      ASSERT_NO_FATAL_FAILURE(expect(after[k].w, u.updated()));
      ASSERT_NO_FATAL_FAILURE(expect({"value of a master copy", {}, u.updated().values()}, u.value));
      ASSERT_NO_FATAL_FAILURE(expect(u.has_m ? after[k].m : Expected{"unused m", {}, unused_m[k]}, u.m));
      if (second_moment) {
        ASSERT_NO_FATAL_FAILURE(expect(after[k].v, u.v));
      }
    }
  }
}

TEST_P(L03_Updates, AdamWIsTheAlgorithm) {
  RecordProperty("exercise", "03.2");
  const AdamWArgs args{.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-6f, .weight_decay = float(kDecay)};
  expect_updates(
      "adamw", every_mix(), true, [&](const Ctx& ctx, ParamList list) { table().adamw(ctx, list, args); },
      [&](const Update& u, double step) { return adamw_of(u, args, step); });
  // The first update of a weight: however large the gradient, it moves by the learning rate.
  Buffer w = Buffer::zeros(DType::F32, 1), m = Buffer::zeros(DType::F32, 1), v = Buffer::zeros(DType::F32, 1);
  const Buffer g(DType::F32, {2});
  TestCtx ctx;
  ctx.scalars().learning_rate = 1, ctx.scalars().updates = 1;
  const ParamUpdate item{1, w.out(Write::Set), g.in(), m.out(Write::Set), v.out(Write::Set), {}, false};
  table().adamw(ctx, {1, &item}, {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 0});
  const double moved = -w.values()[0];
  const auto is = [&](double x) { return std::abs(moved - x) < 1e-3 * x; };
  EXPECT_NEAR(moved, 1, 1e-5) << usual_mistake(
      {{is(0.1), "m begins at 0, and is not corrected for that"},
       {is(1 / std::sqrt(0.001)), "v begins at 0, and is not corrected for that"},
       {is(0.5), "the step is divided by v, not by its root"},
       {is(std::sqrt(2.0)), "v is of gradients, not of their squares"}});
}
void expect_sgd(const SgdArgs& args) {
  std::vector<Update> all = every_mix();
  for (size_t k = 0; k < all.size(); ++k) all[k].has_m = k % 5 != 0;  // sizes repeat every 6
  expect_updates(
      "sgd", std::move(all), false, [&](const Ctx& ctx, ParamList list) { table().sgd(ctx, list, args); },
      [&](const Update& u, double) { return sgd_of(u, args); });
}
TEST_P(L02_Updates, SgdIsTheAlgorithm) {
  for (const float momentum : {0.9f, 0.0f}) expect_sgd({.momentum = momentum, .weight_decay = float(kDecay)});
}
TEST_P(L06_Sgd, NesterovClippingAndScaleAreTheFormula) {
  RecordProperty("exercise", "06.2");
  for (const bool nesterov : {false, true})
    for (const bool clips : {false, true})
      for (const float scale : {1.0f, 3.3f})
        expect_sgd({nesterov ? 0.9f : 0.8f, 0.3f, nesterov, clips, scale});
}

// In the first updates, 1 - b^n cancels nearly all digits of b^n: in fp32 its error would be up to 3e-5.
TEST_P(L03_Updates, AdamWsCorrectionsDoNotCancel) {
  const AdamWArgs args{.beta1 = 0.999f, .beta2 = 0.9999f, .eps = 0};
  for (int n = 1; n <= 20; ++n) {
    Buffer w = Buffer::zeros(DType::F32, 1), m(DType::F32, {1}), v(DType::F32, {1});
    const Buffer g(DType::F32, {1});
    TestCtx ctx;
    ctx.scalars().learning_rate = 1, ctx.scalars().updates = n;
    const ParamUpdate item{1, w.out(Write::Set), g.in(), m.out(Write::Set), v.out(Write::Set), {}, false};
    table().adamw(ctx, {1, &item}, args);
    const double expected =
        std::sqrt(1 - std::pow(double(args.beta2), n)) / (1 - std::pow(double(args.beta1), n));
    EXPECT_NEAR(w.values()[0], -expected, 1e-6 * expected) << "update " << n;
  }
}

}  // namespace
}  // namespace gradus
