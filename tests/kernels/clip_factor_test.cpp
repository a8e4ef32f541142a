// The norm of gradients in two halves: sums of squares, and the factor from several of them.
#include "tests/kernels/kernel_contract.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L18_Kernels);

struct Grads {  // a list of buffers
  std::vector<Buffer> buffers;
  std::vector<CBuf> items;
  std::vector<int64_t> sizes;
  int64_t numel = 0;
  double squares = 0;
  void add(DType t, int64_t n, double size) {
    buffers.push_back(Buffer::random(t, n, 10 + buffers.size(), size));
    for (const double v : buffers.back().values()) squares += v * v;
    items.push_back(buffers.back().in()), sizes.push_back(n), numel += n;
  }
  BufList list() const { return {int64_t(items.size()), items.data(), sizes.data()}; }
};

// Sums are made in fp64, where a square of fp32 has no error: an addition for each element.
void expect_sum(const std::string& what, const Grads& g) {
  const Expected sum{"sum", {DType::F64}, {g.squares}, {2 * double(g.numel) * g.squares}};
  const KernelCall call{
      "sum_squares of " + what,
      {sum},
      [&](const Ctx& c, const std::vector<Out>& out) { table().sum_squares(c, g.list(), out[0]); },
      cost::sum_squares(g.numel, DType::F32)};
  expect_contract(call, all_ways(call.outputs));
}

TEST_P(L18_Kernels, SumSquaresOfEveryTypeAndSize) {
  for (const DType T : float_types())
    for (const int64_t n : {0, 1, 7, 255, 257, 1025, 4097, 65'537, 300'001}) {
      const bool on_cpu = turn.table == &cpu_backend();
      if (!on_cpu && (n > 70'000 || n == 7 || n == 255 || n == 1025 || (n == 257 && T == DType::F32) ||
                      (n > 1000 && T != DType::F16)))
        continue;
      for (const double size : {1.0, T == DType::F16 ? 1000.0 : 1e25, 1e-4}) {
        if (!on_cpu && n > 7 && size != 1) continue;
        Grads g;
        g.add(T, n, size);
        expect_sum(name_of(T) + (" " + std::to_string(n)), g);
      }
    }
}

// More than a launch takes, some of them empty, of every type.
TEST_P(L18_Kernels, SumSquaresOfListsOfAnyLength) {
  for (const int count : {0, 1, 33, 128, 129, 257}) {
    if ((count == 1 || count == 33 || count == 128) && turn.table != &cpu_backend()) continue;
    Grads g;
    const std::vector<DType> types = float_types();
    for (int i = 0; i < count; ++i) g.add(types[size_t(i) % types.size()], i * 37 % 300, 1 + i);
    expect_sum(std::to_string(count) + " buffers", g);
  }
}

TEST_P(L18_Kernels, SumSquaresShowsWhatIsNotFinite) {
  for (const double bad : {double(INFINITY), -double(INFINITY), double(NAN)})
    for (const size_t at : {0, 299}) {
      std::vector<double> values(300, 0.5);
      values[at] = bad;
      const Buffer g(DType::F16, values);
      const CBuf item = g.in();
      const int64_t n = 300;
      Buffer sum(DType::F64, {7});
      TestCtx ctx(cost::sum_squares(n, DType::F16));
      table().sum_squares(ctx, {1, &item, &n}, sum.out(Write::Set));
      EXPECT_FALSE(std::isfinite(sum.values()[0])) << bad;
    }
}

// Exactly: sqrt(s) / loss_scale, min(1, most / (norm + 1e-6)) / loss_scale, each in a few roundings of fp32.
TEST_P(L18_Kernels, ClipFactorIsTheFormula) {
  for (const std::vector<double>& sums : std::vector<std::vector<double>>{{25},
                                                                          {9, 16},
                                                                          {25, 0, 0},
                                                                          {1, 2, 3, 4, 5, 6, 4},
                                                                          std::vector<double>(200, 0.125),
                                                                          {0},
                                                                          {},
                                                                          {25e-12},
                                                                          {9e50, 16e50}})
    for (const float scale : {1.0f, 1024.0f, 0.25f})
      for (const float most : {0.0f, -1.0f, 2.5f, 5.0f, 5.00001f, 1e9f}) {
        const Buffer in(DType::F64, sums);
        double s = 0;
        for (const double v : sums) s += v;
        const double norm = std::sqrt(s) / double(scale);
        const double factor = (most > 0 ? std::min(1.0, double(most) / (norm + 1e-6)) : 1) / double(scale);
        TestCtx ctx(cost::clip_factor(int64_t(sums.size())));
        ctx.scalars().loss_scale = scale, ctx.scalars().updates = 3, ctx.scalars().step = 4;
        ctx.poison_scratch();
        table().clip_factor(ctx, int64_t(sums.size()), in.in(), most);
        const TestScalars after = ctx.scalars();
        EXPECT_NEAR(after.grad_norm, norm, 3e-7 * norm) << sums.size() << " sums, scale " << scale;
        EXPECT_NEAR(after.clip_factor, factor, 3e-7 * factor) << sums.size() << " sums, most " << most;
        EXPECT_EQ(after.loss_scale, scale);
        EXPECT_EQ(after.updates, 3);
        EXPECT_EQ(after.step, 4);
        EXPECT_EQ(after.skip, 0);
        EXPECT_TRUE(ctx.kept_to_its_scratch());
      }
}
TEST_P(L18_Kernels, ClipFactorHidesNothing) {
  for (const double bad : {double(INFINITY), double(NAN)})
    for (const size_t at : {0, 1, 2}) {
      std::vector<double> sums{1, 2, 3};
      sums[at] = bad;
      const Buffer in(DType::F64, sums);
      TestCtx ctx;
      ctx.scalars().growth_interval = 5;
      table().clip_factor(ctx, 3, in.in(), 1);
      EXPECT_FALSE(std::isfinite(ctx.scalars().grad_norm));
      EXPECT_EQ(std::isnan(ctx.scalars().clip_factor), std::isnan(bad))
          << "of NaN no factor makes anything else";
      table().begin_update(ctx);
      EXPECT_EQ(ctx.scalars().skip, 1);
    }
}

// The two halves of one list, and of its parts, are what grad_norm says of the whole.
TEST_P(L18_Kernels, TheHalvesAreTheWhole) {
  for (const size_t cut : {17, 0, 150}) {
    if (cut != 17 && turn.table != &cpu_backend()) continue;
    Grads all, first, second;
    for (size_t i = 0; i < 150; ++i) {
      const int64_t n = int64_t(i) * 37 % 100;
      all.add(DType::F32, n, 1);
      Grads& part = i < cut ? first : second;
      part.items.push_back(all.items[i]), part.sizes.push_back(n);
    }
    TestCtx ctx(cost::grad_norm(all.numel, DType::F32));
    table().grad_norm(ctx, all.list(), 2);
    const float norm = ctx.scalars().grad_norm, factor = ctx.scalars().clip_factor;
    Buffer sums = Buffer::zeros(DType::F64, 2);
    table().sum_squares(ctx, first.list(), sums.out(Write::Set));
    table().sum_squares(ctx, second.list(), sums.out(Write::Set).from(1));
    ctx.scalars().grad_norm = ctx.scalars().clip_factor = -1;
    table().clip_factor(ctx, 2, sums.in(), 2);
    EXPECT_FLOAT_EQ(ctx.scalars().grad_norm, norm) << cut;
    EXPECT_FLOAT_EQ(ctx.scalars().clip_factor, factor) << cut;
  }
}

TEST_P(L18_Kernels, RefusalsOfTypes) {
  TestCtx ctx(cost::sum_squares(1, DType::F32));
  const Buffer one(DType::F32, {1});
  const CBuf item = one.in();
  const int64_t n = 1;
  for (const DType t : {DType::F32, DType::BF16, DType::F16, DType::I32, DType::I64, DType::I8, DType::U8}) {
    double place = 0;
    EXPECT_THROW(table().sum_squares(ctx, {1, &item, &n}, {&place, t, Write::Set}), Error) << name_of(t);
    EXPECT_THROW(table().clip_factor(ctx, 1, {&place, t}, 1), Error) << name_of(t);
  }
  for (const DType t : {DType::I32, DType::I64, DType::I8, DType::U8}) {
    double place = 0, sum = 0;
    const CBuf bad{&place, t};
    EXPECT_THROW(table().sum_squares(ctx, {1, &bad, &n}, {&sum, DType::F64, Write::Set}), Error)
        << name_of(t);
  }
}

}  // namespace
}  // namespace gradus
