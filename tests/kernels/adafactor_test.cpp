// Adafactor against the formula of kernels/entries.inc in fp64.
#include "tests/kernels/adafactor_formula.h"
#include "tests/kernels/rejection_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L06_Adafactor);

// Sizes just below and above those of a warp, a partition (32), and a block of a GPU (256, 1024, 4096).
constexpr Form kForms[] = {{33, 255},       {1, 1025, false}, {2, 257},  {1, 4097, false},
                           {65, 7},         {1, 1023},        {257, 1},  {1, 0, false},
                           {31, 1023},      {1, 1, false},    {3, 4097}, {257, 33},
                           {1, 255, false}, {2, 1025},        {1, 1},    {3, 0}};

std::vector<Dtypes> every_mix() {
  std::vector<Dtypes> all;
  for (const DType T : float_types())
    for (const DType grad : t_or_fp32(T))
      for (const bool master : {false, true})
        if (!master || T != DType::F64) all.push_back({T, grad, master});
  return all;
}

std::vector<ParamUpdate> items_of(std::vector<Matrix>& all) {
  std::vector<ParamUpdate> items;
  for (Matrix& p : all) items.push_back(p.item());
  return items;
}

void expect_after(const After& after, const Matrix& p, const std::string& what) {
  const auto expect = [&](const Expected& e, const Buffer& b) {
    expect_written("adafactor" + what, e, b.type(), Write::Set, {}, b.values());
  };
  ASSERT_NO_FATAL_FAILURE(expect(after.m, p.m));
  if (p.f.has_v && p.n > 0) {
    ASSERT_NO_FATAL_FAILURE(expect(after.v, p.v));
  }
  ASSERT_NO_FATAL_FAILURE(expect(after.w, p.updated()));
  if (p.has_master) {
    ASSERT_NO_FATAL_FAILURE(expect({"value of a master copy", {}, p.master.values()}, p.value));
  }
}
void run_adafactor(std::vector<Matrix>& all, const Setting& s) {
  const std::vector<ParamUpdate> items = items_of(all);
  const ParamList list{int64_t(items.size()), items.data()};
  TestCtx ctx(cost::adafactor(list, s.args.step_size));
  ctx.poison_scratch();
  ctx.scalars().learning_rate = s.rate, ctx.scalars().clip_factor = s.clip, ctx.scalars().updates = s.updates;
  table().adafactor(ctx, list, s.args);
  EXPECT_TRUE(ctx.kept_to_its_scratch()) << "adafactor writes more scratch than cost.h says";
}
// All parameters are in one list, so their kernels share the scratch. Inputs and unwanted outputs must not
// change.
void expect_adafactor(std::vector<Matrix> all, const Setting& s, const std::string& what = "") {
  const std::vector<Matrix> before = all;
  run_adafactor(all, s);
  for (size_t k = 0; k < all.size(); ++k) {
    const Matrix &p = all[k], &old = before[k];
    const std::string which = what + " of parameter " + std::to_string(k) + ", " + std::to_string(p.f.rows) +
                              " x " + std::to_string(p.f.cols);
    ASSERT_NO_FATAL_FAILURE(expect_after(adafactor_of(old, s), p, which));
    ASSERT_EQ(p.grad.values(), old.grad.values()) << which;
    ASSERT_TRUE(p.f.has_v || p.v.values() == old.v.values()) << which << ": v is not wanted";
    ASSERT_TRUE(p.has_master || p.master.values() == old.master.values()) << which;
  }
}

// Cases for each argument: the learning rate below and above 1/sqrt(n), rms(w) below and above eps2, rms(u)
// below and above `most`.
std::vector<Setting> settings() {
  const auto given = StepSize::Given, relative = StepSize::Relative;
  return {{{}, 1, 10},
          {{.weight_decay = 0.3f}, 2, 0.01f, 1},
          {{.step_size = given, .eps1 = 0.2f, .weight_decay = 0.3f}, 1, 0.05f},
          {{.step_size = given, .most = 0.1f, .power = 0.5f}, 300, 0.05f},
          {{.step_size = relative, .eps1 = 0.01f, .eps2 = 10}, 300, 1},
          {{.step_size = relative, .most = 1e6f, .power = 1.5f, .weight_decay = 0.3f}, 2, 0.25f, 30},
          {{.step_size = given, .most = 1e6f, .weight_decay = 0.3f}, 300, 0.05f, 30}};
}

// Each setting with each mix of dtypes, with and without decay, in changing shapes.
TEST_P(L06_Adafactor, IsTheAlgorithm) {
  const OpenMpThreads three(3);
  size_t form = 0;
  for (const Setting& s : settings()) {
    std::vector<Matrix> all;
    for (const Dtypes& d : every_mix())
      for (const bool decay : {false, true})
        all.emplace_back(kForms[form++ % std::size(kForms)], d, decay, decay ? 1 : 0.1);
    const std::string what = " at update " + std::to_string(s.updates);
    ASSERT_NO_FATAL_FAILURE(expect_adafactor(std::move(all), s, what));
  }
}

TEST_P(L06_Adafactor, EveryShapeInOneType) {
  std::vector<Matrix> all;
  for (const Form& f : kForms) all.emplace_back(f, Dtypes{DType::F32, DType::F32, false}, true);
  if (turn.table == &cpu_backend())
    for (const Form& f : {Form{257, 1025}, {65, 4097}, {1, 70'001, false}, {4099, 3}, {7, 1}})
      all.emplace_back(f, Dtypes{DType::BF16, DType::F32, true}, true);
  expect_adafactor(std::move(all), {{.weight_decay = 0.3f}, 3});
  expect_adafactor({}, {});  // nothing to do
}

// A matrix of given gradients and weights, in T.
Matrix matrix_of(DType T, Form f, const std::function<double(int64_t i, int64_t j)>& gradient,
                 double size = 1) {
  Matrix p(f, {T, T, false}, false, size);
  std::vector<double> g(p.n);
  for (int64_t i = 0; i < p.n; ++i) g[i] = gradient(i / f.cols, i % f.cols);
  p.grad = Buffer(T, g);
  return p;
}

// Where a row and a column without gradient meet, sqrt(V) is as small as eps1, whose square is below the
// range of fp32; 0 / sqrt(V) is 0. Weights that are all 0 move by eps2.
TEST_P(L06_Adafactor, ZerosOfGradientsAndWeights) {
  const auto crossed = [](int64_t i, int64_t j) {
    return i == 3 || j == 5 ? 0 : 0.1 * double(i + 1 - j % 4);
  };
  const auto none = [](int64_t, int64_t) { return 0; };
  for (const DType T : float_types())
    for (const float eps1 : {1e-30f, 1e-3f})
      for (const int64_t updates : {1, 2}) {
        const Form matrix{7, 33}, vector{1, 33, false};
        const std::vector<Matrix> all{matrix_of(T, matrix, crossed),    matrix_of(T, matrix, none),
                                      matrix_of(T, matrix, crossed, 0), matrix_of(T, vector, none),
                                      matrix_of(T, vector, crossed, 0), matrix_of(T, vector, crossed)};
        ASSERT_NO_FATAL_FAILURE(
            expect_adafactor(all, {{.eps1 = eps1}, updates}, std::string(" in ") + name_of(T)));
      }
}

// A row and a column with tiny gradients: V is below the range of fp32, but its root is not.
TEST_P(L06_Adafactor, SmallGradientsBesideLargeOnes) {
  const auto tiny = [](int64_t i, int64_t j) { return (i == 3 ? 1e-12 : 1) * (j == 5 ? 1e-12 : 1); };
  for (const float most : {1.0f, 1e30f})
    expect_adafactor({matrix_of(DType::F32, {7, 33}, tiny)}, {{.most = most}});
}

TEST_P(L06_Adafactor, TheSameForAnyNumberOfThreads) {
  for (const Setting& s : {Setting{{.weight_decay = 0.3f}, 2}, Setting{{.step_size = StepSize::Given}, 2}}) {
    std::vector<std::vector<double>> first;
    for (const int threads : {1, 3, 2}) {
      if (turn.table != &cpu_backend() && threads > 1) break;
      const OpenMpThreads as_many(threads);
      std::vector<Matrix> all;
      for (const Form& f : {Form{65, 1025}, {1, 40'003, false}, {1025, 33}, {33, 31}})
        if (turn.table == &cpu_backend() || f.rows * f.cols < 5000)
          for (const DType T : {DType::F32, DType::BF16}) all.emplace_back(f, Dtypes{T, T, true}, true);
      run_adafactor(all, s);
      for (size_t k = 0, i = 0; k < all.size(); ++k)
        for (const Buffer* b : {&all[k].value, &all[k].m, &all[k].v, &all[k].master}) {
          if (threads == 1) first.push_back(b->values());
          ASSERT_EQ(b->values(), first[i++]) << "parameter " << k << " with " << threads << " threads";
        }
    }
  }
}

TEST_P(L06_Adafactor, ANanIsNotHidden) {
  const auto one_nan = [](int64_t i, int64_t j) { return i == 1 && j == 2 ? NAN : 1.0; };
  const auto ones = [](int64_t, int64_t) { return 1; };
  const auto count = [](const Buffer& b) {
    int64_t nans = 0;
    for (const double x : b.values()) nans += std::isnan(x);
    return nans;
  };
  for (const StepSize step_size : {StepSize::Given, StepSize::Relative}) {
    std::vector<Matrix> all;
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>(3, 7), {33, 257}})
      all.push_back(matrix_of(DType::F32, {rows, cols}, one_nan));
    all.push_back(matrix_of(DType::F32, {3, 7}, ones));
    all.push_back(matrix_of(DType::F32, {1, 65, false}, [](int64_t, int64_t j) { return j == 9 ? NAN : 1; }));
    std::vector<Matrix> clipped{matrix_of(DType::F32, {3, 7}, ones)};
    run_adafactor(all, {{.step_size = step_size}, 2});
    run_adafactor(clipped, {{.step_size = step_size}, 2, 0.01f, NAN});  // NaN, as from clip_factor
    for (const size_t k : {0, 1}) {
      EXPECT_EQ(count(all[k].m), 1);
      EXPECT_EQ(count(all[k].v), 1);
      EXPECT_EQ(count(all[k].value), all[k].n) << "the mean of v is NaN, and so is V";
    }
    EXPECT_EQ(count(all[2].value), 0) << "a parameter without NaN";
    EXPECT_EQ(count(all[3].m), 1);
    EXPECT_EQ(count(all[3].value), 65) << "rms(u) is NaN";
    EXPECT_EQ(count(clipped[0].value), 21);
  }
}

TEST_P(L06_Adafactor, WhatIsRefusedChangesNothing) {
  if (on_cuda()) GTEST_SKIP() << "a GPU prints some messages and then does no more work for this process";
  const auto expect = [&](const std::string& part, Dtypes d, const std::function<void(ParamUpdate&)>& wrong,
                          int64_t updates = 1) {
    Matrix p({4, 6}, d, true);
    const Matrix before = p;
    ParamUpdate item = p.item();
    wrong(item);
    TestCtx ctx(Cost{.scratch = 4096});
    ctx.scalars().updates = updates;
    expect_refused(part, [&] { table().adafactor(ctx, {1, &item}, {}); });
    EXPECT_EQ(p.value.values(), before.value.values()) << part;
    EXPECT_EQ(p.m.values(), before.m.values()) << part;
    EXPECT_EQ(p.v.values(), before.v.values()) << part;
  };
  constexpr Dtypes kFp32{DType::F32, DType::F32, false}, kBf16{DType::BF16, DType::F32, true};
  for (const int64_t updates : {0, -1})
    expect(
        "the number of updates is " + std::to_string(updates), kFp32, [](ParamUpdate&) {}, updates);
  for (const int64_t rows : {5, 48, 0, -4})
    expect(std::to_string(rows) + " rows do not divide the 24", kFp32,
           [&](ParamUpdate& u) { u.rows = rows; });
  expect("the columns' state is bf16 where fp32", kBf16, [](ParamUpdate& u) { u.m.t = DType::BF16; });
  expect("the rows' state is bf16 where fp32", kBf16, [](ParamUpdate& u) { u.v.t = DType::BF16; });
  expect("is fp16 where fp32", kFp32, [](ParamUpdate& u) { u.m.t = DType::F16; });
  expect("is fp16 where fp32", kFp32, [](ParamUpdate& u) { u.v.t = DType::F16; });
  expect("the master copy is bf16", kBf16, [](ParamUpdate& u) { u.master.t = DType::BF16; });
  expect("a gradient is fp16", kBf16, [](ParamUpdate& u) { u.grad.t = DType::F16; });
  constexpr Dtypes kFp64{DType::F64, DType::F64, false};
  if (turn.table == &cpu_backend())
    expect("the columns' state is fp32 where fp64", kFp64, [](ParamUpdate& u) { u.m.t = DType::F32; });
  else
    expect("has no GPU kernel", kFp64, [](ParamUpdate&) {});
}

// The bounds above are narrower than an error of 1 % anywhere in the formula.
TEST_P(L06_Adafactor, ReferencesThatAreOnePercentOffAreRejected) {
  const Setting clipped{{.eps1 = 0.2f, .most = 0.5f, .weight_decay = 0.3f}, 2, 0.1f};
  for (const Dtypes& d : {Dtypes{DType::F32, DType::F32, false}, {DType::BF16, DType::BF16, true}}) {
    std::vector<Matrix> all{Matrix({33, 255}, d, true)};
    const std::vector<Matrix> before = all;
    run_adafactor(all, clipped);
    expect_after(adafactor_of(before[0], clipped), all[0], "");
    for (size_t place = 0; place < kRight.size(); ++place) {
      Factors off = kRight;
      off[place] = 1.01;
      const Expected w = adafactor_of(before[0], clipped, off).w;
      const auto expect = [&] {
        expect_written("adafactor", w, DType::F32, Write::Set, {}, all[0].updated().values());
      };
      EXPECT_TRUE(is_rejected(expect)) << "place " << place;
    }
  }
}

}  // namespace
}  // namespace gradus
