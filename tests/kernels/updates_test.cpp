// The optimizers and the norm of gradients against formulas in fp64.
#include "tests/kernels/kernel_contract.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L02_Updates);
ON_EVERY_DEVICE(L03_Updates);

// A parameter, what an optimizer updates of it, and what all that must become.
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
  // Where the arithmetic is done: on the master copy, of which the value is then the rounding.
  const Buffer& updated() const { return has_master ? master : value; }
  int64_t n;
  bool decay, has_m = true, has_master = false;
  Buffer value, grad, m, v, master;
};

// Every mix of dtypes, with and without master copy, decay and (SGD) momentum, at sizes on both sides of what
// a block takes at a time (1,024) and in all (4,096). More of them than one launch takes (32).
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

constexpr double kRate = 0.01f, kClip = 0.7f, kDecay = 0.1f;
struct AfterUpdate {
  Expected w{"value", {}, {}}, m{"m", {}, {}}, v{"v", {}, {}};
  void add(double wi, double w_error, double mi, double m_error, double vi = 0) {
    w.value.push_back(wi), w.error.push_back(w_error);
    m.value.push_back(mi), m.error.push_back(m_error);
    v.value.push_back(vi), v.error.push_back(4 * vi);
  }
};

AfterUpdate adamw_of(const Update& u, const AdamWArgs& args, double step) {
  const std::vector<double> w = u.updated().values(), g = u.grad.values(), m = u.m.values(), v = u.v.values();
  const double b1 = args.beta1, b2 = args.beta2;
  AfterUpdate after;
  for (int64_t i = 0; i < u.n; ++i) {
    const double gi = kClip * g[i], mi = b1 * m[i] + (1 - b1) * gi, vi = b2 * v[i] + (1 - b2) * gi * gi;
    const double m_error = 4 * (std::abs(b1 * m[i]) + std::abs((1 - b1) * gi));
    const double slope =
        kRate / (1 - std::pow(b1, step)) / (std::sqrt(vi / (1 - std::pow(b2, step))) + double(args.eps));
    after.add(w[i] * (1 - (u.decay ? kRate * kDecay : 0)) - slope * mi,
              3 * std::abs(w[i]) + slope * (16 * std::abs(mi) + m_error), mi, m_error, vi);
  }
  return after;
}
AfterUpdate sgd_of(const Update& u, const SgdArgs& args) {
  const std::vector<double> w = u.updated().values(), g = u.grad.values(), m = u.m.values();
  AfterUpdate after;
  for (int64_t i = 0; i < u.n; ++i) {
    const double old = u.has_m ? double(args.momentum) * m[i] : 0,
                 step = kClip * g[i] + (u.decay ? kDecay : 0) * w[i];
    const double size = std::abs(old) + std::abs(kClip * g[i]) + std::abs(kDecay * w[i]);
    after.add(w[i] - kRate * (old + step), 2 * std::abs(w[i]) + 4 * kRate * size, old + step, 4 * size);
  }
  return after;
}

// All in one list, twice: what is shared between updates must be renewed.
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
}
TEST_P(L02_Updates, SgdIsTheAlgorithm) {
  const SgdArgs args{.momentum = 0.9f, .weight_decay = float(kDecay)};
  std::vector<Update> all = every_mix();
  for (size_t k = 0; k < all.size(); ++k) all[k].has_m = k % 5 != 0;  // sizes repeat every 6
  expect_updates(
      "sgd", std::move(all), false, [&](const Ctx& ctx, ParamList list) { table().sgd(ctx, list, args); },
      [&](const Update& u, double) { return sgd_of(u, args); });
}

// 1 - b^n of the first updates, where nearly all digits of b^n go: in fp32 it would be off by up to 3e-5.
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

TEST_P(L03_Updates, AMasterCopyKeepsWhatTheValueRoundsAway) {
  Buffer value(DType::BF16, {1.0}), master(DType::F32, {1.0}), m = Buffer::zeros(DType::F32, 1),
                                                               v = Buffer::zeros(DType::F32, 1);
  const Buffer g(DType::F32, {1.0});
  TestCtx ctx;
  ctx.scalars().learning_rate = 1e-4f;
  for (int step = 1; step <= 100; ++step) {
    ctx.scalars().updates = step;
    const ParamUpdate item{
        1,    value.out(Write::Set), g.in(), m.out(Write::Set), v.out(Write::Set), master.out(Write::Set),
        false};
    table().adamw(ctx, {1, &item}, {});
  }
  EXPECT_NEAR(master.values()[0], 0.99, 1e-4);
  EXPECT_EQ(value.values()[0], rounded(DType::BF16, master.values()[0]));
}

TEST_P(L02_Updates, SgdWithAndWithoutMomentum) {
  for (const auto& [has_m, momentum] : {std::pair(false, 0.0f), {true, 0.5f}, {true, 0.0f}}) {
    Buffer w(DType::F32, {1, 2}), m(DType::F32, {0.5, 0});
    const Buffer g(DType::F32, {8, -4});
    TestCtx ctx;
    ctx.scalars().learning_rate = 0.125f;
    ctx.scalars().clip_factor = 0.5f;
    const ParamUpdate item{2, w.out(Write::Set), g.in(), has_m ? m.out(Write::Set) : Out{}, {}, {}, true};
    table().sgd(ctx, {1, &item}, {.momentum = momentum, .weight_decay = 1.0f});
    const double step = momentum * 0.5 + 5;  // g' = g/2 + w = (5, 0); m = momentum m + g'
    EXPECT_EQ(w.values(), (std::vector<double>{1 - 0.125 * step, 2}));
    EXPECT_EQ(m.values(), (std::vector<double>{has_m ? step : 0.5, 0}));
  }
}

TEST_P(L03_Updates, GradNormAndClipping) {
  TestCtx ctx(cost::grad_norm(100'010, DType::F32));
  const Buffer a = Buffer::random(DType::F32, 100'003, 1), b = Buffer::random(DType::BF16, 7, 2);
  double sum = 0;
  for (const Buffer* g : {&a, &b})
    for (const double v : g->values()) sum += v * v;
  const CBuf items[] = {a.in(), b.in()};
  const int64_t sizes[] = {100'003, 7};
  const Ctx c = ctx;
  table().grad_norm(c, {2, items, sizes}, 2.0f);
  EXPECT_NEAR(ctx.scalars().grad_norm, std::sqrt(sum), 1e-6 * std::sqrt(sum));
  EXPECT_NEAR(ctx.scalars().clip_factor, 2 / std::sqrt(sum), 1e-6 * 2 / std::sqrt(sum));
  table().grad_norm(c, {2, items, sizes}, 1e6f);
  EXPECT_EQ(ctx.scalars().clip_factor, 1);
  const Buffer bad(DType::F32, {1, NAN});
  const CBuf one[] = {bad.in()};
  const int64_t two[] = {2};
  table().grad_norm(c, {1, one, two}, 1.0f);
  EXPECT_TRUE(std::isnan(ctx.scalars().grad_norm) && std::isnan(ctx.scalars().clip_factor))
      << "a NaN must not be hidden";
}

TEST_P(L03_Updates, GradNormOfListsOfAnyLength) {
  TestCtx ctx(cost::grad_norm(3 * 300, DType::F16));
  const Buffer g(DType::F16, {2, -3, 6});  // its norm is 7
  const std::vector<CBuf> items(300, g.in());
  const std::vector<int64_t> sizes(300, 3);
  for (const int64_t count : {300, 1, 0}) {
    table().grad_norm(ctx, {count, items.data(), sizes.data()}, 0);
    EXPECT_FLOAT_EQ(ctx.scalars().grad_norm, 7 * std::sqrt(float(count)));
    EXPECT_EQ(ctx.scalars().clip_factor, 1);
  }
}

// min(1, max_norm / (norm + 1e-6)), also where the two norms are equal, or as small as what is added.
TEST_P(L03_Updates, ClippingIsTheFormula) {
  TestCtx ctx(cost::grad_norm(2, DType::F32));
  const int64_t two = 2;
  for (const double size : {1.0, 1e-6})
    for (const double max_norm : {2.5, 5.0, 5.0000011, 6.5}) {
      const Buffer g(DType::F32, {3 * size, -4 * size});
      const CBuf item = g.in();
      table().grad_norm(ctx, {1, &item, &two}, float(max_norm * size));
      EXPECT_FLOAT_EQ(ctx.scalars().clip_factor, float(std::min(1.0, max_norm * size / (5 * size + 1e-6))))
          << max_norm << " x " << size;
    }
}

// The square of a number may overflow fp32 where the number does not. The norm is the same for any number of
// threads.
TEST_P(L03_Updates, GradNormOfEveryTypeAndOfLargeNumbers) {
  for (const DType T : float_types())
    for (const int64_t n : {1, 63, 65, 257, 65'537}) {
      const Buffer g = Buffer::random(T, n, 1, T == DType::F16 ? 1000 : 1e25);
      double sum = 0;
      for (const double v : g.values()) sum += v * v;
      const CBuf item = g.in();
      TestCtx ctx(cost::grad_norm(n, T));
      ctx.poison_scratch();
      const OpenMpThreads one(1);
      table().grad_norm(ctx, {1, &item, &n}, 1.5f);
      EXPECT_NEAR(ctx.scalars().grad_norm, std::sqrt(sum), 2e-7 * std::sqrt(sum)) << name_of(T) << n;
      EXPECT_NEAR(ctx.scalars().clip_factor, 1.5 / std::sqrt(sum), 2e-7 * 1.5 / std::sqrt(sum));
      EXPECT_TRUE(ctx.kept_to_its_scratch());
      const float norm = ctx.scalars().grad_norm;
      const OpenMpThreads three(3);
      table().grad_norm(ctx, {1, &item, &n}, 1.5f);
      EXPECT_EQ(ctx.scalars().grad_norm, norm);
    }
}

}  // namespace
}  // namespace gradus
