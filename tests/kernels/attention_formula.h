// Attention by its formula in fp64, one weight at a time: each output is computed from the inputs of its own
// call, with the errors that sums in fp32 may have.
#pragma once
#include "kernels/cuda/attention_cudnn.h"
#include "kernels/philox.h"
#include "tests/kernels/kernel_contract.h"

namespace gradus {

enum class Saves { Probs, Lse };  // attention_plain, attention_flash
constexpr Saves kBothKinds[] = {Saves::Probs, Saves::Lse};

constexpr int64_t kStep = 0x8000'007;
struct AttentionCtx : DirtyCtx {
  explicit AttentionCtx(const Cost& cost) : DirtyCtx(cost) { scalars().step = kStep; }
};
// The factor that dropout gives the weight of query t to key j.
inline double dropout_factor(const AttentionShape& s, int64_t b, int64_t h, int64_t t, int64_t j) {
  if (s.dropout == 0) return 1;
  const int64_t e = s.key.first_element + (h * s.T + t) * s.T + j;
  const Philox4 words = dropout_words(s.key.seed, kStep, s.key.ordinal, s.key.first_sample + b, e / 4);
  return uniform01(words[e % 4]) >= s.dropout ? 1 / (1 - double(s.dropout)) : 0;
}

inline int64_t extent(const AttentionShape& s, int64_t heads, const HeadLayout& l) {
  return s.B * s.T * heads * s.D == 0 ? 0
                                      : (s.B - 1) * l.batch + (heads - 1) * l.head + (s.T - 1) * l.time + s.D;
}

struct AttentionFormula {
  AttentionShape s;
  DType t;
  std::vector<double> q, k, v, dy;                      // rounded to t
  Expected probs, lse, y, flash_y;                      // outputs of forward
  std::vector<double> saved_probs, saved_lse, saved_y;  // the same, rounded: inputs of backward

  static std::vector<double> as_stored(DType t, std::vector<double> x) {
    std::replace(x.begin(), x.end(), kNotWritten, double(NAN));
    return Buffer(t, x).values();
  }
  // Random numbers in the heads of the layout, and NaN between them, which the kernel must not read.
  std::vector<double> random(int64_t heads, const HeadLayout& l, uint64_t stream) const {
    const std::vector<double> all = Buffer::random(t, extent(s, heads, l), stream).values();
    std::vector<double> x(all.size(), NAN);
    for (int64_t i = 0; i < s.B * heads * s.T * s.D; ++i) {
      const int64_t head = i / s.D / s.T, at_i = at(l, head / heads, head % heads, i / s.D % s.T) + i % s.D;
      x[at_i] = all[at_i];
    }
    return x;
  }

  AttentionFormula(const AttentionShape& shape, DType dtype)
      : s(shape),
        t(dtype),
        q(random(s.H, s.qkv, 1)),
        k(random(s.KV, s.qkv, 2)),
        v(random(s.KV, s.qkv, 3)),
        dy(random(s.H, s.y, 4)),
        probs(Expected::sums("probs", {t}, s.B * s.H * s.T * s.T)),
        lse(Expected::sums("lse", {stat(t)}, s.B * s.H * s.T)),
        y(Expected::sums("y", {t}, extent(s, s.H, s.y))),
        flash_y(y) {
    for (int64_t i = 0; i < s.B * s.H * s.T; ++i) forward(i);
    saved_probs = as_stored(t, probs.value), saved_y = as_stored(t, y.value);
    saved_lse = as_stored(stat(t), lse.value);
  }

  // Roundings of sums of D products and of `weights` weights, and of the operations on each. dk and dv sum
  // over the weights of a group's heads.
  double roundings(int64_t weights) const { return double(s.D + weights + 16); }
  double roundings() const { return roundings(s.T); }
  // Further roundings if cuDNN rounds weights, or dS, to t before it multiplies: 2^16 roundings of fp32
  // (bf16) or 2^13 (fp16).
  double roundings_to_t(bool backward) const {
    const bool by_cudnn = on_cuda() && turn.alignment == Alignment::Full && cuda::cudnn_problem().empty() &&
                          cuda::cudnn_takes(s, t, backward);
    return by_cudnn ? epsilon_of(t) / epsilon_of(stat(t)) : 0;
  }
  int64_t keys(int64_t time) const { return s.mask == Mask::Causal ? time + 1 : s.T; }
  static int64_t at(const HeadLayout& l, int64_t b, int64_t h, int64_t time) {
    return b * l.batch + h * l.head + time * l.time;
  }
  // The offset of key or value j for head h of queries.
  int64_t at_key(int64_t b, int64_t h, int64_t j) const { return at(s.qkv, b, h / (s.H / s.KV), j); }
  struct Dot {
    double sum = 0, size = 0;
    void add(double a, double b) { sum += a * b, size += std::abs(a * b); }
  };
  Dot dot(const std::vector<double>& a, int64_t i, const std::vector<double>& b, int64_t j) const {
    Dot dot;
    for (int64_t d = 0; d < s.D; ++d) dot.add(a[i + d], b[j + d]);
    return dot;
  }

  void forward(int64_t i) {
    const int64_t b = i / s.T / s.H, h = i / s.T % s.H, time = i % s.T, n = keys(time);
    double sum = 0, size = 0;
    std::vector<double> x(n);
    for (int64_t j = 0; j < n; ++j) {
      const Dot score = dot(q, at(s.qkv, b, h, time), k, at_key(b, h, j));
      sum += x[j] = std::exp(score.sum * double(s.scale));
      size = std::max(size, score.size * std::abs(double(s.scale)));
    }
    const double to_t = roundings_to_t(false);
    lse.add(i, std::log(sum), roundings() * (1 + size + std::abs(std::log(sum))));
    for (int64_t j = 0; j < s.T; ++j) {
      const double p = j < n ? x[j] / sum : 0, error = roundings() * p * (1 + 2 * size);
      probs.add(i * s.T + j, p, error);
      const double factor = j < n ? dropout_factor(s, b, h, time, j) : 0;
      for (int64_t d = 0; d < s.D; ++d) {
        const int64_t i_y = at(s.y, b, h, time) + d;
        const double vd = v[at_key(b, h, j) + d], size = std::abs(factor * vd);
        y.add(i_y, factor * p * vd, error * size);
        flash_y.add(i_y, factor * p * vd, (error + to_t * p) * size);
      }
    }
  }

  struct Gradients {
    Expected dq, dk, dv;
  };
  Gradients backward(Saves saves) const {
    const int64_t n = extent(s, s.KV, s.qkv);
    Gradients g{Expected::sums("dq", {t}, extent(s, s.H, s.qkv)), Expected::sums("dk", {t}, n),
                Expected::sums("dv", {t}, n)};
    for (int64_t i = 0; i < s.B * s.H * s.T; ++i) backward(saves, i, g);
    return g;
  }
  // One query: dP = dropout(dy v^T), dS = P (dP - rowsum).
  void backward(Saves saves, int64_t i, Gradients& g) const {
    const int64_t b = i / s.T / s.H, h = i / s.T % s.H, time = i % s.T;
    const int64_t query = at(s.qkv, b, h, time), out = at(s.y, b, h, time);
    std::vector<double> P(s.T), P_size(s.T), factor(s.T);
    std::vector<Dot> dP(s.T);
    Dot row = dot(dy, out, saved_y, out);
    if (saves == Saves::Probs) row = {};
    for (int64_t j = 0; j < keys(time); ++j) {
      const Dot score = dot(q, query, k, at_key(b, h, j));
      P[j] = saves == Saves::Probs ? saved_probs[i * s.T + j]
                                   : std::exp(double(s.scale) * score.sum - saved_lse[i]);
      P_size[j] =
          P[j] *
          (saves == Saves::Probs ? 1 : 1 + std::abs(double(s.scale)) * score.size + std::abs(saved_lse[i]));
      factor[j] = dropout_factor(s, b, h, time, j);
      dP[j] = dot(dy, out, v, at_key(b, h, j));
      dP[j].sum *= factor[j], dP[j].size *= factor[j];
      if (saves == Saves::Probs) row.sum += P[j] * dP[j].sum, row.size += P[j] * dP[j].size;
    }
    // If heads share keys, cuDNN rounds their gradients to t before it sums them.
    const double to_t = saves == Saves::Lse ? roundings_to_t(true) : 0, of_query = roundings() + to_t,
                 of_group = roundings(s.H / s.KV * s.T) + (s.KV < s.H ? 2 : 1) * to_t;
    for (int64_t j = 0; j < s.T; ++j)
      for (int64_t d = 0; d < s.D; ++d) {
        const int64_t key = at_key(b, h, j) + d;
        const double dS = double(s.scale) * P[j] * (dP[j].sum - row.sum);
        const double size = std::abs(double(s.scale)) * P_size[j] * (dP[j].size + row.size);
        g.dq.add(query + d, dS * k[key], of_query * size * std::abs(k[key]));
        g.dk.add(key, dS * q[query + d], of_group * size * std::abs(q[query + d]));
        g.dv.add(key, P[j] * factor[j] * dy[out + d],
                 of_group * P_size[j] * factor[j] * std::abs(dy[out + d]));
      }
  }
};

}  // namespace gradus
