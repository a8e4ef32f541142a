// AdamW and SGD by the formulas of kernels/entries.inc in fp64, and the allowed errors.
#pragma once
#include "tests/kernels/kernel_contract.h"

namespace gradus {

constexpr double kRate = 0.01f, kClip = 0.7f, kDecay = 0.1f;
struct AfterUpdate {
  Expected w{"value", {}, {}}, m{"m", {}, {}}, v{"v", {}, {}};
  void add(double wi, double w_error, double mi, double m_error, double vi = 0) {
    w.value.push_back(wi), w.error.push_back(w_error);
    m.value.push_back(mi), m.error.push_back(m_error);
    v.value.push_back(vi), v.error.push_back(4 * vi);
  }
};

// U: a parameter with its gradient and states.
template <class U>
AfterUpdate adamw_of(U& u, const AdamWArgs& args, double step) {
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

// Without m there is no momentum, so Nesterov's has nothing to add.
template <class U>
AfterUpdate sgd_of(const U& u, const SgdArgs& a) {
  const std::vector<double> w = u.updated().values(), g = u.grad.values(), m = u.m.values();
  const double scale = double(a.scale) * (a.clips ? kClip : 1), mu = u.has_m ? a.momentum : 0;
  const double roundings = a.scale == 1 ? 4 : 5, of_step = a.nesterov ? 16 : a.scale == 1 ? 4 : 8;
  AfterUpdate after;
  for (int64_t i = 0; i < u.n; ++i) {
    const double wd = u.decay ? double(a.weight_decay) * w[i] : 0, old = mu * m[i], fresh = scale * g[i] + wd,
                 mi = old + fresh;
    const double size = std::abs(old) + std::abs(scale * g[i]) + std::abs(wd);
    const double step = a.nesterov ? fresh + mu * mi : mi;
    after.add(w[i] - kRate * step, 2 * std::abs(w[i]) + of_step * kRate * size, mi, roundings * size);
  }
  return after;
}

}  // namespace gradus
