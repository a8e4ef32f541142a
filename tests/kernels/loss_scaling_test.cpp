// Dynamic loss scaling in the kernels: the decision, and that a skipped update writes nothing. (For the norm,
// see grad_norm_test.cpp.)
#include "tests/kernels/kernel_contract.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L09_LossScaling);

TEST_P(L09_LossScaling, BackwardBeginsWithTheScale) {
  TestCtx ctx;
  for (const float scale : {1.0f, 65536.0f, 0.125f}) {
    ctx.scalars().loss_scale = scale;
    for (const DType T : float_types()) {
      if (T == DType::F16 && scale > 65504) continue;
      Buffer set(T, {7, 7}), add(T, {2, 7});
      table().loss_scale(ctx, set.out(Write::Set));
      table().loss_scale(ctx, add.out(Write::Add));
      EXPECT_EQ(set.values(), (std::vector<double>{scale, 7})) << name_of(T);
      EXPECT_EQ(add.values()[0], T == DType::BF16 && scale > 256 ? scale : scale + 2) << name_of(T);
      EXPECT_EQ(add.values()[1], 7) << "one element";
    }
  }
  table().loss_scale(ctx, Out{});  // not wanted
}

// An optimizer's update is made or skipped depending on its own norm; the scale has no influence.
TEST_P(L09_LossScaling, AnUpdateIsMadeOrSkipped) {
  TestCtx ctx;
  for (const int64_t interval : {0, 3}) {  // 0: no loss scaling
    ctx.scalars() = {};
    ctx.scalars().loss_scale = 1024, ctx.scalars().growth_interval = interval, ctx.scalars().step = 9;
    ctx.scalars().clip_factor = 0.25f, ctx.scalars().learning_rate = 0.5f, ctx.scalars().good_updates = 2;
    int64_t made = 0, skipped = 0;
    for (const float norm : {2.0f, INFINITY, 0.0f, 1e30f, NAN, -INFINITY, 1.0f}) {
      const bool skip = interval > 0 && !std::isfinite(norm);
      made += !skip, skipped += skip;
      ctx.scalars().grad_norm = norm;
      table().begin_update(ctx, true);
      const TestScalars s = ctx.scalars();
      EXPECT_EQ(s.skip, skip) << "norm " << norm;
      EXPECT_EQ(s.updates, made) << "norm " << norm;
      EXPECT_EQ(s.overflows, skipped) << "norm " << norm;
    }
    const TestScalars s = ctx.scalars();  // the others have not changed
    EXPECT_EQ(s.growth_interval, interval);
    EXPECT_EQ(s.good_updates, 2);
    EXPECT_EQ(s.loss_scale, 1024);
    EXPECT_EQ(s.clip_factor, 0.25f);
    EXPECT_EQ(s.step, 9);
    EXPECT_EQ(s.learning_rate, 0.5f);
    table().begin_update(ctx, false);
    EXPECT_EQ(ctx.scalars().clip_factor, 1) << "the factor of the update before is not used again";
  }
}

struct Decision {
  int32_t overflows;  // of an attempt
  int64_t good;
  float scale;
};
TEST_P(L09_LossScaling, TheDecision) {
  RecordProperty("exercise", "09.5");
  TestCtx ctx;
  ctx.scalars().loss_scale = 1024, ctx.scalars().growth_interval = 3;
  ctx.scalars().updates = 4, ctx.scalars().skip = 1, ctx.scalars().step = 9;
  int attempt = 0;
  for (const Decision& d : std::vector<Decision>{{0, 1, 1024},
                                                 {0, 2, 1024},
                                                 {0, 0, 2048},
                                                 {0, 1, 2048},
                                                 {1, 0, 1024},
                                                 {2, 0, 512},  // of two optimizers: halved once
                                                 {1, 0, 256},
                                                 {0, 1, 256},
                                                 {0, 2, 256},
                                                 {0, 0, 512}}) {
    ctx.scalars().overflows = d.overflows;
    table().update_loss_scale(ctx);
    const TestScalars s = ctx.scalars();
    EXPECT_EQ(s.good_updates, d.good)
        << "attempt " << attempt
        << usual_mistake({{attempt == 2 && s.good_updates == 3 && s.loss_scale == 1024,
                           "the third good update in a row does not double the scale: is it counted before "
                           "the comparison?"},
                          {attempt == 4 && s.good_updates == 1 && s.loss_scale == 1024,
                           "after an overflow the good updates before it still count: when is the count "
                           "set to 0?"}});
    EXPECT_EQ(s.loss_scale, d.scale) << "attempt " << attempt;
    EXPECT_EQ(s.overflows, 0) << "attempt " << attempt;
    ++attempt;
  }
  const TestScalars s = ctx.scalars();  // the others have not changed
  EXPECT_EQ(s.growth_interval, 3);
  EXPECT_EQ(s.updates, 4);
  EXPECT_EQ(s.skip, 1);
  EXPECT_EQ(s.step, 9);
}

TEST_P(L09_LossScaling, TheScaleStaysFiniteAndAboveZero) {
  RecordProperty("exercise", "09.5");
  TestCtx ctx;
  ctx.scalars().growth_interval = 3;
  ctx.scalars().loss_scale = 0x1p127f, ctx.scalars().good_updates = 2;
  table().update_loss_scale(ctx);
  EXPECT_EQ(ctx.scalars().loss_scale, 0x1p127f) << "twice this scale would be infinite";
  EXPECT_EQ(ctx.scalars().good_updates, 0) << "the count is set to 0 although the scale stays";
  for (const float smallest : {0x1p-149f, 0x1p-148f}) {
    ctx.scalars().loss_scale = smallest, ctx.scalars().overflows = 1;
    table().update_loss_scale(ctx);
    EXPECT_EQ(ctx.scalars().loss_scale, 0x1p-149f) << "half of the scale, but never 0";
  }
}

// Every optimizer, in 16 bits with a master copy and in fp32 without; the gradient has a NaN, and no update
// was made yet.
TEST_P(L09_LossScaling, ASkippedUpdateWritesNothing) {
  for (const DType T : {DType::F32, DType::F16})
    for (const int skip : {1, 0}) {
      constexpr int64_t kRows = 30, kCols = 137, n = kRows * kCols;
      std::vector<double> gradient = Buffer::random(T, n, 1).values();
      if (skip) gradient[5] = NAN;
      const Buffer grad(T, gradient);
      struct Case {
        const char* op;
        std::function<void(const Ctx&, ParamList)> run;
        int64_t m, v;  // elements of the states
      };
      const std::vector<Case> cases{
          {"sgd", [](const Ctx& c, ParamList l) { table().sgd(c, l, {.momentum = 0.9f}); }, n, 0},
          {"adamw", [](const Ctx& c, ParamList l) { table().adamw(c, l, {}); }, n, n},
          {"adafactor", [](const Ctx& c, ParamList l) { table().adafactor(c, l, {}); }, kCols, kRows}};
      for (const Case& k : cases) {
        Buffer value = Buffer::random(T, n, 2), m = Buffer::random(DType::F32, k.m, 3, 0.1),
               master = Buffer::random(DType::F32, n, 4);
        Buffer v(DType::F32, std::vector<double>(size_t(k.v), 0.5));
        if (k.op == std::string("adafactor")) m = Buffer(DType::F32, std::vector<double>(kCols, 0.25));
        const auto state = [&] {
          return std::vector{value.values(), m.values(), v.values(), master.values()};
        };
        const auto before = state();
        const ParamUpdate u{.n = n,
                            .value = value.out(Write::Set),
                            .grad = grad.in(),
                            .m = m.out(Write::Set),
                            .v = k.v ? v.out(Write::Set) : Out{},
                            .master = T == DType::F16 ? master.out(Write::Set) : Out{},
                            .decay = true,
                            .rows = kRows};
        const ParamList list{1, &u};
        TestCtx ctx(cost::adafactor(list, StepSize::Relative));
        ctx.scalars().learning_rate = 0.1f, ctx.scalars().skip = skip, ctx.scalars().updates = 1 - skip;
        k.run(ctx, list);
        if (skip)
          EXPECT_EQ(state(), before) << k.op << " " << name_of(T);
        else
          EXPECT_NE(state(), before) << k.op << " " << name_of(T);
      }
      Buffer m = Buffer::random(T, n, 3), direction = Buffer::random(T, n, 4);
      const auto m_before = m.values(), direction_before = direction.values();
      TestCtx ctx(cost::muon_direction(n, T, T, T));
      ctx.scalars().skip = skip;
      table().muon_direction(ctx, n, grad.in(), m.out(Write::Set), direction.out(Write::Set), 0.95f);
      EXPECT_EQ(m.values() == m_before, skip == 1);
      EXPECT_EQ(direction.values() == direction_before, skip == 1);
    }
}

}  // namespace
}  // namespace gradus
