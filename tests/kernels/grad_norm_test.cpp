// The norm of gradients and the factor that clips them: sums of squares, and the factor from one sum or from
// several.
#include "tests/kernels/kernel_contract.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L03_GradNorm);
ON_EVERY_DEVICE(L09_GradNorm);
ON_EVERY_DEVICE(L18_GradNorm);

struct Grads {  // a list of buffers
  std::vector<Buffer> buffers;
  std::vector<CBuf> items;
  std::vector<int64_t> sizes;
  int64_t numel = 0;
  double squares = 0;
  void add(const Buffer& b) {
    const std::vector<double> values = b.values();
    for (const double v : values) squares += v * v;
    buffers.push_back(b), items.push_back(buffers.back().in());
    sizes.push_back(int64_t(values.size())), numel += sizes.back();
  }
  void add(DType t, int64_t n, double size) { add(Buffer::random(t, n, 10 + buffers.size(), size)); }
  BufList list(int64_t begin = 0) const {
    return {int64_t(items.size()) - begin, items.data() + begin, sizes.data() + begin};
  }
};

enum class By { OneSum, TwoSums };
// The two sums are those of the list's first third and of the rest.
void run_norm(TestCtx& ctx, const Grads& g, float most, By by) {
  Buffer sums = Buffer::zeros(DType::F64, 2);
  BufList first = g.list();
  if (by == By::OneSum) {
    table().sum_squares(ctx, first, sums.out(Write::Set));
    return table().clip_factor(ctx, 1, sums.in(), most);
  }
  first.count /= 3;
  table().sum_squares(ctx, first, sums.out(Write::Set));
  table().sum_squares(ctx, g.list(first.count), sums.out(Write::Set).from(1));
  table().clip_factor(ctx, 2, sums.in(), most);
}
TestCtx context_of(const Grads& g, float scale) {
  TestCtx ctx(cost::sum_squares(g.numel, DType::F32));
  ctx.poison_scratch();
  ctx.scalars().loss_scale = scale, ctx.scalars().updates = 3, ctx.scalars().step = 4;
  return ctx;
}
// sqrt(s) / loss_scale, min(1, most / (norm + 1e-6)) / loss_scale, each within a few roundings of fp32.
void expect_factor(TestCtx& ctx, double squares, float most, const std::string& what) {
  const TestScalars after = ctx.scalars();
  const double scale = after.loss_scale, norm = std::sqrt(squares) / scale;
  const double factor = (most > 0 ? std::min(1.0, double(most) / (norm + 1e-6)) : 1) / scale;
  EXPECT_NEAR(after.grad_norm, norm, 3e-7 * norm) << what << ", scale " << scale;
  EXPECT_NEAR(after.clip_factor, factor, 3e-7 * factor) << what << ", scale " << scale << ", most " << most;
  EXPECT_EQ(std::tuple(after.updates, after.step, after.skip), std::tuple(3, 4, 0)) << what;
  EXPECT_TRUE(ctx.kept_to_its_scratch()) << what;
}
// The norm is the same for any number of threads.
void expect_norm(const Grads& g, float most, float scale, By by, const std::string& what) {
  std::vector<float> norms;
  for (const int threads : {1, 3}) {
    if (threads > 1 && turn.table != &cpu_backend()) break;
    const OpenMpThreads as_many(threads);
    TestCtx ctx = context_of(g, scale);
    run_norm(ctx, g, most, by);
    expect_factor(ctx, g.squares, most, what);
    EXPECT_EQ(ctx.scalars().loss_scale, scale) << what;
    norms.push_back(ctx.scalars().grad_norm);
  }
  EXPECT_EQ(norms.front(), norms.back()) << what;
}

// Every type and size, also numbers whose squares overflow fp32; and lists of every type with more buffers
// than a launch takes, some of them empty.
std::vector<std::pair<std::string, Grads>> lists() {
  const bool on_cpu = turn.table == &cpu_backend();
  std::vector<std::pair<std::string, Grads>> all;
  for (const DType T : float_types())
    for (const int64_t n : {0, 1, 7, 63, 65, 255, 257, 1025, 4097, 65'537, 300'001})
      for (const double size : {1.0, T == DType::F16 ? 1000.0 : 1e25, 1e-4}) {
        if (!on_cpu && (n > 70'000 || (n != 7 && T != DType::F16) || (n > 7 && size != 1))) continue;
        Grads g;
        g.add(T, n, size);
        all.emplace_back(name_of(T) + (" " + std::to_string(n)), std::move(g));
      }
  for (const int count : {0, 1, 33, 128, 129, 257}) {
    if ((count == 1 || count == 33 || count == 128) && !on_cpu) continue;
    Grads g;
    const std::vector<DType> types = float_types();
    for (int i = 0; i < count; ++i) g.add(types[size_t(i) % types.size()], i * 37 % 300, 1 + i);
    all.emplace_back(std::to_string(count) + " buffers", std::move(g));
  }
  return all;
}

TEST_P(L03_GradNorm, OfEveryTypeSizeAndList) {
  for (const auto& [what, g] : lists()) expect_norm(g, 1.5f, 1, By::OneSum, what);
}

// Sums are computed in fp64, where the square of an fp32 number is exact: each element adds one rounding.
TEST_P(L18_GradNorm, OfEveryTypeSizeAndListInTwoSums) {
  for (const auto& [what, g] : lists()) {
    const TestedCall call{
        "sum_squares of " + what,
        {{"sum", {DType::F64}, {g.squares}, {2 * double(g.numel) * g.squares}}},
        [&, &g = g](const Ctx& c, const std::vector<Out>& out) { table().sum_squares(c, g.list(), out[0]); },
        cost::sum_squares(g.numel, DType::F32)};
    expect_contract(call, all_ways(call.outputs));
    expect_norm(g, 1.5f, 1, By::TwoSums, what);
  }
}

// Also norms that equal the maximum, and norms as small as the 1e-6 that is added to them.
void expect_clipping(const std::vector<float>& scales, By by) {
  for (const float scale : scales)
    for (const double size : {1.0, 1e-6, 1e20, 0.0}) {
      if (size != 1 && size != 1e-6 && turn.table != &cpu_backend()) continue;
      for (const double most : {0.0, -1.0, 2.5, 5.0, 5.0000011, 6.5, 1e9}) {
        Grads g;
        g.add(Buffer(DType::F32, {3 * size * double(scale), -4 * size * double(scale)}));
        expect_norm(g, float(most * (size > 0 ? size : 1)), scale, by, std::to_string(size));
      }
    }
}
TEST_P(L03_GradNorm, ClippingIsTheFormula) { expect_clipping({1}, By::OneSum); }
TEST_P(L09_GradNorm, IsOfTheGradientsWithoutTheScale) {
  expect_clipping({1024, 65536, 3, 0x1p-4f}, By::OneSum);
}
TEST_P(L18_GradNorm, ClippingIsTheFormulaInTwoSums) { expect_clipping({1, 1024, 0.25f}, By::TwoSums); }

TEST_P(L18_GradNorm, AFactorOfAnyNumberOfSums) {
  for (const std::vector<double>& sums : std::vector<std::vector<double>>{
           {25, 0, 0}, {1, 2, 3, 4, 5, 6, 4}, std::vector<double>(200, 0.125), {}, {9e50, 16e50}}) {
    const Buffer in(DType::F64, sums);
    double squares = 0;
    for (const double v : sums) squares += v;
    TestCtx ctx = context_of({}, 1024);
    table().clip_factor(ctx, int64_t(sums.size()), in.in(), 2.5f);
    expect_factor(ctx, squares, 2.5f, std::to_string(sums.size()) + " sums");
  }
}

// The norm is not finite, either, and with loss scaling the update is skipped.
void expect_not_finite(By by) {
  for (const DType T : float_types())
    for (const double bad : {double(INFINITY), -double(INFINITY), double(NAN)})
      for (const int64_t at : {0, 256, 999}) {
        std::vector<double> values(1000, 0.5);
        values[size_t(at)] = bad;
        Grads g;
        g.add(Buffer(T, values));
        TestCtx ctx = context_of(g, 65536);
        ctx.scalars().growth_interval = 5;
        run_norm(ctx, g, 1, by);
        EXPECT_FALSE(std::isfinite(ctx.scalars().grad_norm)) << name_of(T) << " " << bad << " at " << at;
        EXPECT_EQ(std::isnan(ctx.scalars().clip_factor), std::isnan(bad))
            << "if the norm is NaN, the factor must be NaN";
        table().begin_update(ctx, true);
        EXPECT_EQ(ctx.scalars().skip, 1) << name_of(T) << " " << bad << " at " << at;
      }
}
TEST_P(L09_GradNorm, OfWhatIsNotFiniteSaysSo) { expect_not_finite(By::OneSum); }
TEST_P(L18_GradNorm, OfWhatIsNotFiniteSaysSoInTwoSums) { expect_not_finite(By::TwoSums); }

TEST_P(L03_GradNorm, IsOfFloats) {
  Buffer any = Buffer::zeros(DType::F32, 8);
  TestCtx ctx(cost::sum_squares(1, DType::F32));
  const int64_t one = 1;
  for (const DType t : {DType::I64, DType::I32, DType::I8, DType::U8}) {
    const CBuf item{any.in().p, t};
    const Out sum{any.out(Write::Set).p, DType::F64};
    EXPECT_THROW(table().sum_squares(ctx, {1, &item, &one}, sum), Error) << name_of(t);
  }
}
TEST_P(L18_GradNorm, SumsAreFp64) {
  Buffer any = Buffer::zeros(DType::F32, 8);
  TestCtx ctx(cost::sum_squares(1, DType::F32));
  const CBuf item = any.in();
  const int64_t one = 1;
  for (const DType t : {DType::F32, DType::BF16, DType::F16, DType::I32, DType::I64, DType::I8, DType::U8}) {
    EXPECT_THROW(table().sum_squares(ctx, {1, &item, &one}, {any.out(Write::Set).p, t}), Error) << name_of(t);
    EXPECT_THROW(table().clip_factor(ctx, 1, {any.in().p, t}, 1), Error) << name_of(t);
  }
}

}  // namespace
}  // namespace gradus
