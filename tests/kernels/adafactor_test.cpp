// Adafactor against the formula of kernels/entries.inc in fp64.
#include <gtest/gtest-spi.h>

#include <array>

#include "tests/kernels/kernel_contract.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L06_Adafactor);

struct Form {  // of a parameter; a vector is one row without v
  int64_t rows, cols;
  bool has_v = true;
};
// On both sides of what a warp and a partition (32) take, and a block of a GPU (256, 1024, 4096).
constexpr Form kForms[] = {{33, 255},       {1, 1025, false}, {2, 257},  {1, 4097, false},
                           {65, 7},         {1, 1023},        {257, 1},  {1, 0, false},
                           {31, 1023},      {1, 1, false},    {3, 4097}, {257, 33},
                           {1, 255, false}, {2, 1025},        {1, 1}};

struct Dtypes {
  DType T, grad;
  bool master;
};
std::vector<Dtypes> every_mix() {
  std::vector<Dtypes> all;
  for (const DType T : float_types())
    for (const DType grad : t_or_fp32(T))
      for (const bool master : {false, true})
        if (!master || T != DType::F64) all.push_back({T, grad, master});
  return all;
}

// States that are not 0, as after other updates.
std::vector<double> squares(int64_t n) {
  std::vector<double> all(n);
  for (int64_t i = 0; i < n; ++i) all[i] = 0.5 + 0.1 * double(i % 7);
  return all;
}

// A parameter and what belongs to it; the master copy is not the value's, to see which one is updated.
struct Matrix {
  Matrix(Form f, Dtypes d, bool decay, double size = 1)
      : f(f),
        has_master(d.master),
        decay(decay),
        n(f.rows * f.cols),
        value(Buffer::random(d.T, n, 1, size)),
        grad(Buffer::random(d.grad, n, 2)),
        m(stat(d.T), squares(f.cols)),
        v(stat(d.T), squares(f.rows)),
        master(Buffer::random(DType::F32, n, 3, size)) {}
  ParamUpdate item() {
    const auto out = [](Buffer& b, bool wanted) { return wanted ? b.out(Write::Set) : Out{}; };
    return {n,     out(value, true),        grad.in(), out(m, true), out(v, f.has_v), out(master, has_master),
            decay, f.has_v ? f.rows : f.rows};
  }
  const Buffer& updated() const { return has_master ? master : value; }
  Form f;
  bool has_master, decay;
  int64_t n;
  Buffer value, grad, m, v, master;
};
std::vector<ParamUpdate> items_of(std::vector<Matrix>& all) {
  std::vector<ParamUpdate> items;
  for (Matrix& p : all) items.push_back(p.item());
  return items;
}

struct Setting {
  AdafactorArgs args = {};
  int64_t updates = 1;
  float rate = 0.01f, clip = 0.7f;
};

// Where a reference can be wrong by a factor, to see that the bounds notice.
enum Place : size_t { kGradient, kPower, kRowMean, kColumnMean, kEps1, kSizeOfU, kSizeOfW, kRate, kDecay };
using Factors = std::array<double, 9>;
constexpr Factors kRight = {1, 1, 1, 1, 1, 1, 1, 1, 1};

double rms(const std::vector<double>& x) {
  double sum = 0;
  for (const double xi : x) sum += xi * xi;
  return x.empty() ? 0 : std::sqrt(sum / double(x.size()));
}

struct After {
  Expected w{"value", {}, {}}, m{"m", {}, {}}, v{"v", {}, {}};
};

// m and v, and u = g' / sqrt(V).
std::vector<double> states_of(const Matrix& p, const Setting& s, const Factors& off, After& after) {
  const auto [R, C, has_v] = p.f;
  std::vector<double> g = p.grad.values(), row(R), col(C);
  for (int64_t i = 0; i < p.n; ++i) {
    g[i] *= off[kGradient] * double(s.clip);
    row[i / C] += off[kRowMean] * g[i] * g[i] / double(C), col[i % C] += off[kColumnMean] * g[i] * g[i] / R;
  }
  const double share = std::pow(double(s.updates), -off[kPower] * double(s.args.power)),  // 1 - b
      eps1 = off[kEps1] * double(s.args.eps1);
  // A sum of L terms >= 0, in any order: L roundings; besides those of g'^2, of the mean, of eps1, of b and 1
  // - b (of which the larger is rounded in fp32), and of both products. All terms are >= 0, so relative
  // errors do not grow.
  const auto state = [&](Expected& e, const std::vector<double>& mean, std::vector<double> old, int64_t L) {
    for (size_t i = 0; i < mean.size(); ++i) {
      e.value.push_back((1 - share) * old[i] + share * (mean[i] + eps1));
      e.error.push_back(double(L + 16) * e.value[i]);
    }
  };
  state(after.m, col, p.m.values(), R), state(after.v, row, p.v.values(), C);
  double mean = 0;
  for (const double v : after.v.value) mean += v / double(R);
  for (int64_t i = 0; i < p.n; ++i)
    g[i] /= std::sqrt((has_v ? after.v.value[i / C] / mean : 1) * after.m.value[i % C]);
  return g;
}

After adafactor_of(const Matrix& p, const Setting& s, const Factors& off = kRight) {
  After after;
  const AdafactorArgs& a = s.args;
  const std::vector<double> w = p.updated().values(), u = states_of(p, s, off, after);
  const double n = double(s.updates), lr = s.rate, R = double(p.f.rows), C = double(p.f.cols);
  const double step =
      off[kRate] *
      (a.step_size == StepSize::Given
           ? lr
           : std::max(double(a.eps2), off[kSizeOfW] * rms(w)) * std::min(lr, 1 / std::sqrt(n)));
  const double by = step / std::max(1.0, off[kSizeOfU] * rms(u) / double(a.most));
  const double decay = p.decay ? off[kDecay] * lr * double(a.weight_decay) : 0;
  // V's relative error is that of m, of v and of the mean of v, half of which arrives in u; rms(u) has it too,
  // and adds half of its sum's. Sums over a matrix are those of its rows or columns, summed (cost.h has two
  // numbers of scratch for each), so R + C roundings.
  const double V = (p.f.has_v ? 2 * (C + 16) + R : 0) + (R + 16) + 4, u_error = V / 2 + 4,
               error = 2 * u_error + (R + C) / 2 + (R + C) / 2 + 16;
  for (int64_t i = 0; i < p.n; ++i) {
    after.w.value.push_back(w[i] - decay * w[i] - by * u[i]);
    after.w.error.push_back(3 * std::abs(w[i]) + error * std::abs(by * u[i]));
  }
  return after;
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
// Everything in one list, whose kernels share the scratch.
void expect_adafactor(std::vector<Matrix> all, const Setting& s, const std::string& what = "") {
  std::vector<After> after;
  std::vector<std::vector<double>> grads, unused;
  for (const Matrix& p : all) {
    after.push_back(adafactor_of(p, s));
    grads.push_back(p.grad.values()), unused.push_back((p.f.has_v ? p.master : p.v).values());
  }
  run_adafactor(all, s);
  for (size_t k = 0; k < all.size(); ++k) {
    const std::string which = what + " of parameter " + std::to_string(k) + ", " +
                              std::to_string(all[k].f.rows) + " x " + std::to_string(all[k].f.cols);
    ASSERT_NO_FATAL_FAILURE(expect_after(after[k], all[k], which));
    ASSERT_EQ(grads[k], all[k].grad.values()) << which << ": a gradient is an input";
    if (!all[k].f.has_v || !all[k].has_master) {
      ASSERT_EQ(unused[k], (all[k].f.has_v ? all[k].master : all[k].v).values()) << which << ": not wanted";
    }
  }
}
