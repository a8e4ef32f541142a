// Element-wise kernels, dropout and the optimizers against formulas in fp64, over dtypes and ragged sizes.
#include <omp.h>

#include "kernels/philox.h"
#include "tests/kernel_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L02_Kernels);
ON_EVERY_DEVICE(L03_Kernels);

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

TEST_P(L02_Kernels, Add) {
  expect_elementwise(
      "add", table().add, [](double a, double b) { return a + b; }, 1);
}
TEST_P(L02_Kernels, Scale) {
  expect_elementwise(
      "scale", [](const Ctx& c, int64_t n, CBuf a, CBuf, Out y) { table().scale(c, n, a, y, -1.5f); },
      [](double a, double) { return -1.5 * a; }, 1);
}
TEST_P(L02_Kernels, Tanh) {
  expect_elementwise(
      "tanh_fwd", [](const Ctx& c, int64_t n, CBuf a, CBuf, Out y) { table().tanh_fwd(c, n, a, y); },
      [](double a, double) { return std::tanh(a); }, 4);
  expect_elementwise(
      "tanh_bwd", table().tanh_bwd, [](double y, double dy) { return dy * (1 - y * y); }, 16);
}
TEST_P(L03_Kernels, Gelu) {
  expect_elementwise(
      "gelu_fwd", [](const Ctx& c, int64_t n, CBuf a, CBuf, Out y) { table().gelu_fwd(c, n, a, y); },
      [](double a, double) { return gelu(a); }, 16);
  expect_elementwise(
      "gelu_bwd", table().gelu_bwd, [](double x, double dy) { return dy * gelu_slope(x); }, 64);
}
TEST_P(L02_Kernels, FillAndCast) {
  TestCtx ctx;
  for (const DType from : float_types())
    for (const DType to : float_types()) {
      const Buffer x = Buffer::random(from, 257, 1);
      Buffer y = Buffer::zeros(to, 257);
      table().cast(ctx, 257, x.in(), y.out(Write::Set));
      const Buffer expected(to, x.values());  // the Buffer's own conversion, one number at a time
      EXPECT_EQ(y.values(), expected.values()) << name_of(from) << " to " << name_of(to);
      table().fill(ctx, 257, y.out(Write::Set), 1.5);
      EXPECT_EQ(y.values(), std::vector<double>(257, 1.5));
    }
}
TEST_P(L02_Kernels, NanAndInfinityPass) {
  TestCtx ctx;
  const Buffer x(DType::F32, {NAN, INFINITY, -INFINITY});
  Buffer y = Buffer::zeros(DType::F32, 3);
  table().gelu_fwd(ctx, 3, x.in(), y.out(Write::Set));
  EXPECT_TRUE(std::isnan(y.values()[0]) && std::isinf(y.values()[1]));
  table().tanh_fwd(ctx, 3, x.in(), y.out(Write::Set));
  EXPECT_TRUE(std::isnan(y.values()[0]));
  EXPECT_EQ(y.values()[1], 1);
  EXPECT_EQ(y.values()[2], -1);
}
TEST_P(L02_Kernels, OtherDtypesAreRefusedAndNullOutputsSkipped) {
  TestCtx ctx;
  const Buffer x = Buffer::random(DType::F32, 4, 1);
  Buffer half = Buffer::zeros(DType::BF16, 4);
  EXPECT_THROW(table().add(ctx, 4, x.in(), half.in(), half.out(Write::Set)), Error);
  EXPECT_THROW(table().gelu_fwd(ctx, 4, x.in(), half.out(Write::Set)), Error);
  EXPECT_THROW(table().fill(ctx, 4, Out{half.out(Write::Set).p, DType::I32, Write::Set}, 0), Error);
  table().gelu_bwd(ctx, 4, x.in(), x.in(), Out{nullptr, DType::F32, Write::Set});
  table().tanh_bwd(ctx, 4, x.in(), x.in(), Out{nullptr, DType::F32, Write::Set});
}

TEST_P(L03_Kernels, DropoutKeepsTheRightShareAndItsMaskIsAFunctionOfTheSample) {
  const int64_t B = 6,
                n = 2003;  // no multiple of the 4 elements that share a draw, nor of what a block takes
  const Buffer x(DType::F32, std::vector<double>(B * n, 1.0));
  Buffer y = Buffer::zeros(DType::F32, B * n), part = Buffer::zeros(DType::F32, 2 * n);
  TestCtx ctx;
  ctx.scalars().step = 5;
  table().dropout(ctx, {B, n}, x.in(), y.out(Write::Set), 0.25f, {42, 3});
  const std::vector<double> whole = y.values();
  int64_t kept = 0;
  for (int64_t i = 0; i < B * n; ++i) {
    const Philox4 words = dropout_words(42, 5, 3, i / n, i % n / 4);
    const bool keep = uniform01(words[i % n % 4]) >= 0.25f;
    ASSERT_EQ(whole[i], keep ? double(1.0f / 0.75f) : 0.0) << "dropout element " << i;
    kept += keep;
  }
  EXPECT_NEAR(double(kept) / double(B * n), 0.75, 5 * std::sqrt(0.75 * 0.25 / double(B * n)));
  // Samples 4 and 5 as a micro-batch of their own.
  table().dropout(ctx, {2, n}, x.in(), part.out(Write::Set), 0.25f, {42, 3, 4});
  EXPECT_EQ(part.values(), std::vector<double>(whole.begin() + 4 * n, whole.end()));
  const Buffer any = Buffer::random(DType::F32, 21, 1);
  expect_add_is_set_plus("dropout", DType::F32, 21, [&](Out out) {
    table().dropout(ctx, {3, 7}, any.in(), out, 0.25f, {42, 3});
  });
}

TEST_P(L03_Kernels, GradNormAndClipping) {
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

TEST_P(L03_Kernels, GradNormOfListsOfAnyLength) {
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

struct Update {
  Buffer w, g, m, v;
};

TEST_P(L03_Kernels, AdamWIsTheAlgorithm) {
  RecordProperty("exercise", "03.2");
  const AdamWArgs args{.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-6f, .weight_decay = 0.1f};
  for (const DType t : float_types())
    for (const bool decay : {false, true})
      for (const int64_t n : kRagged) {
        Update u{Buffer::random(t, n, 1), Buffer::random(t, n, 2), Buffer::random(t, n, 3, 0.1),
                 Buffer(t, {})};
        std::vector<double> second(n);
        for (int64_t i = 0; i < n; ++i) second[i] = 0.01 + 0.01 * double(i % 7);
        u.v = Buffer(t, second);
        const std::vector<double> w = u.w.values(), g = u.g.values(), m = u.m.values(), v = u.v.values();
        TestCtx ctx;
        ctx.scalars() = {
            .learning_rate = 0.01f, .grad_norm = 0, .clip_factor = 0.5f, .step = 1, .updates = 3};
        const ParamUpdate item{
            n, u.w.out(Write::Set), u.g.in(), u.m.out(Write::Set), u.v.out(Write::Set), {}, decay};
        table().adamw(ctx, {1, &item}, args);
        std::vector<double> expected(n);
        for (int64_t i = 0; i < n; ++i) {
          const double gi = 0.5 * g[i], mi = double(0.9f) * m[i] + (1 - double(0.9f)) * gi;
          const double vi = double(0.95f) * v[i] + (1 - double(0.95f)) * gi * gi;
          const double m_hat = mi / (1 - std::pow(double(0.9f), 3)),
                       v_hat = vi / (1 - std::pow(double(0.95f), 3));
          expected[i] = w[i] * (1 - (decay ? double(0.01f) * double(0.1f) : 0)) -
                        double(0.01f) * m_hat / (std::sqrt(v_hat) + double(1e-6f));
        }
        const double eps = epsilon_of(t == DType::F64 ? DType::F64 : DType::F32);
        expect_close(std::string("adamw ") + name_of(t), u.w.values(), expected, [&](int64_t i) {
          return epsilon_of(t) * std::abs(expected[i]) + 16 * eps * (std::abs(w[i]) + 0.1) +
                 (t == DType::F16 ? 0x1p-25 : 0);
        });
      }
}

TEST_P(L03_Kernels, AMasterCopyKeepsWhatTheValueRoundsAway) {
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
  EXPECT_EQ(value.values()[0], double(bf16(float(master.values()[0]))));
}

TEST_P(L02_Kernels, SgdWithAndWithoutMomentum) {
  for (const bool momentum : {false, true}) {
    Buffer w(DType::F32, {1, 2}), m(DType::F32, {0.5, 0});
    const Buffer g(DType::F32, {8, -4});
    TestCtx ctx;
    ctx.scalars().learning_rate = 0.125f;
    ctx.scalars().clip_factor = 0.5f;
    const ParamUpdate item{2, w.out(Write::Set), g.in(), momentum ? m.out(Write::Set) : Out{}, {}, {}, true};
    table().sgd(ctx, {1, &item}, {.momentum = momentum ? 0.5f : 0.0f, .weight_decay = 1.0f});
    // g' = g/2 + w = (5, 0); with momentum m = m/2 + g' = (5.25, 0)
    EXPECT_EQ(w.values(), (std::vector<double>{1 - 0.125 * (momentum ? 5.25 : 5), 2}));
  }
}

// Parameters of all sizes and of every mix of dtypes, with and without a master copy, momentum and decay.
struct ManyUpdates {
  explicit ManyUpdates(bool second_moment) {
    constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16};
    constexpr int64_t kSizes[] = {5000, 0, 1, 4096, 257};
    for (int i = 0; i < 80; ++i) {
      const DType T = kTypes[i % 3];
      const auto T_or_fp32 = [&](int bit) { return i >> bit & 1 ? DType::F32 : T; };
      const int64_t n = kSizes[i % 5];
      w.push_back(Buffer::random(T, n, 1));
      g.push_back(Buffer::random(T_or_fp32(0), n, 2));
      m.push_back(Buffer::random(T_or_fp32(1), n, 3, 0.1));
      v.push_back(Buffer(T_or_fp32(2), std::vector<double>(n, 0.01)));
      master.push_back(Buffer(DType::F32, w.back().values()));
      const bool has_m = second_moment || i % 7 < 3, has_master = T != DType::F32 && i % 4 < 2;
      const auto out = [](Buffer& b, bool wanted) { return wanted ? b.out(Write::Set) : Out{}; };
      items.push_back({n, out(w.back(), true), g.back().in(), out(m.back(), has_m),
                       out(v.back(), second_moment), out(master.back(), has_master), i % 2 == 0});
    }
  }
  ParamList list() const { return {int64_t(items.size()), items.data()}; }
  std::vector<Buffer> w, g, m, v, master;
  std::vector<ParamUpdate> items;
};

void expect_same(const char* op, const std::vector<Buffer>& got, const std::vector<Buffer>& expected) {
  for (size_t k = 0; k < got.size(); ++k) {
    const std::vector<double> e = expected[k].values();
    expect_close(op + (" of parameter " + std::to_string(k)), got[k].values(), e, [&](int64_t i) {
      return 2 * epsilon_of(got[k].type()) * std::abs(e[i]) + 0x1p-20 * (std::abs(e[i]) + 0.1);
    });
  }
}

TEST_P(L03_Kernels, ListsOfParametersAreThoseOfTheCpuOneByOne) {
  TestCtx ctx;
  ctx.scalars() = {.learning_rate = 0.01f, .grad_norm = 0, .clip_factor = 0.5f, .step = 1, .updates = 3};
  for (const bool is_adamw : {false, true}) {
    ManyUpdates got(is_adamw), expected(is_adamw);
    const auto update = [&](const Backend& k, ParamList list) {
      if (is_adamw)
        k.adamw(ctx, list, {.weight_decay = 0.1f});
      else
        k.sgd(ctx, list, {.momentum = 0.9f, .weight_decay = 0.1f});
    };
    for (ctx.scalars().updates = 3; ctx.scalars().updates < 5;
         ++ctx.scalars().updates) {  // what is shared must be renewed
      update(table(), got.list());
      for (const ParamUpdate& item : expected.items) update(cpu_backend(), {1, &item});
    }
    const char* const op = is_adamw ? "adamw" : "sgd";
    expect_same(op, got.w, expected.w);
    expect_same(op, got.m, expected.m);
    expect_same(op, got.v, expected.v);
    expect_same(op, got.master, expected.master);
  }
}

TEST(L02_KernelsOnCpu, PhiloxKnownAnswers) {  // Random123's kat_vectors for philox4x32, 10 rounds
  EXPECT_EQ(philox(0, 0, 0), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace gradus
