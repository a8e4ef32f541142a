// Adafactor by the formula of kernels/entries.inc in fp64, and the allowed errors.
#pragma once
#include <array>

#include "tests/kernels/kernel_contract.h"

namespace gradus {

struct Form {  // the shape of a parameter; a vector is one row without v
  int64_t rows, cols;
  bool has_v = true;
};
struct Dtypes {
  DType T, grad;
  bool master;
};
// States that are not 0, as after earlier updates.
inline std::vector<double> squares(int64_t n) {
  std::vector<double> all(n);
  for (int64_t i = 0; i < n; ++i) all[i] = 0.5 + 0.1 * double(i % 7);
  return all;
}

// A parameter with its gradient and states. The master copy differs from the value, so that a test sees which
// of the two is updated.
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
    return {n,     out(value, true), grad.in(), out(m, true), out(v, f.has_v), out(master, has_master), decay,
            f.rows};
  }
  const Buffer& updated() const { return has_master ? master : value; }
  Form f;
  bool has_master, decay;
  int64_t n;
  Buffer value, grad, m, v, master;
};
struct Setting {
  AdafactorArgs args = {};
  int64_t updates = 1;
  float rate = 0.01f, clip = 0.7f;
};

// The places where a reference can be wrong by a factor, to test that the bounds detect it.
enum Place : size_t { kGradient, kPower, kRowMean, kColumnMean, kEps1, kSizeOfU, kSizeOfW, kRate, kDecay };
using Factors = std::array<double, 9>;
constexpr Factors kRight = {1, 1, 1, 1, 1, 1, 1, 1, 1};

inline double rms(const std::vector<double>& x) {
  double sum = 0;
  for (const double xi : x) sum += xi * xi;
  return x.empty() ? 0 : std::sqrt(sum / double(x.size()));
}

struct After {
  Expected w{"value", {}, {}}, m{"m", {}, {}}, v{"v", {}, {}};
};

// Computes m and v; returns u = g' / sqrt(V).
inline std::vector<double> states_of(const Matrix& p, const Setting& s, const Factors& off, After& after) {
  const auto [R, C, has_v] = p.f;
  std::vector<double> g = p.grad.values(), row(R), col(C);
  for (int64_t i = 0; i < p.n; ++i) {
    g[i] *= off[kGradient] * double(s.clip);
    row[i / C] += off[kRowMean] * g[i] * g[i] / double(C), col[i % C] += off[kColumnMean] * g[i] * g[i] / R;
  }
  const double share = std::pow(double(s.updates), -off[kPower] * double(s.args.power)),  // 1 - b
      eps1 = off[kEps1] * double(s.args.eps1);
  // All terms are >= 0, so relative errors do not grow. A sum of L of them in any order has L roundings;
  // g'^2, the mean, eps1, b and 1 - b, and the products with these have 16 more.
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

inline After adafactor_of(const Matrix& p, const Setting& s, const Factors& off = kRight) {
  After after;
  const AdafactorArgs& a = s.args;
  const std::vector<double> w = p.updated().values(), u = states_of(p, s, off, after);
  const double n = double(s.updates), lr = s.rate, R = double(p.f.rows), C = double(p.f.cols);
  const double step =
      off[kRate] * (a.step_size == StepSize::Given
                        ? lr
                        : std::max(double(a.eps2), off[kSizeOfW] * rms(w)) * std::min(lr, 1 / std::sqrt(n)));
  const double by = step / std::max(1.0, off[kSizeOfU] * rms(u) / double(a.most));
  const double decay = p.decay ? off[kDecay] * lr * double(a.weight_decay) : 0;
  // The relative error of V is the sum of those of m, v and the mean of v; u has half of it. rms(u) has the
  // same error as u and half of that of its sum. Sums over a matrix add the sums of its rows or columns
  // (cost.h has two numbers of scratch for each), so they have R + C roundings.
  const double row = C + 16, column = R + 16, V = (p.f.has_v ? 2 * row + R : 0) + column + 4,
               u_error = V / 2 + 4, error = 2 * u_error + (R + C) / 2 + (R + C) / 2 + 16;
  for (int64_t i = 0; i < p.n; ++i) {
    after.w.value.push_back(w[i] - decay * w[i] - by * u[i]);
    after.w.error.push_back(3 * std::abs(w[i]) + error * std::abs(by * u[i]));
  }
  return after;
}

}  // namespace gradus
