// How far two correct versions of attention may differ: one sums in tiles, the other over whole rows, and one
// recomputes the probabilities that the other saves in the dtype of the activations.
#pragma once
#include "tests/ops/attention_testing.h"

namespace gradus {

inline double roundoff_of(DType t) { return t == DType::F32 ? 0x1p-24 : t == DType::BF16 ? 0x1p-8 : 0x1p-11; }

// The error of a sum of n rounded terms is at most n u times the sum of their absolute values; for random
// terms it is about sqrt(n) u times that sum, and above 4 times this with a probability below 1/1000 (Higham
// & Mary 2019, theorem 2.4).
inline double roundings(int64_t n) { return std::min(double(n), 4 * std::sqrt(double(n))); }

// For each element of y and dqkv the sum of the errors that attention_plain and attention_flash may have; NaN
// for elements that are not computed. u: the roundoff of fp32, in which sums are taken; e: that of the dtype;
// R(n): the roundings of a sum of n terms; S: a query's largest sum of |q k|, scaled, by the norms of q and
// k. |dP|: the sum of |dy v|.
//   w = 2 S R(D) + R(keys) + 4                   u's in a weight P, and e more where plain has saved it
//   w' = 2 S R(D) + R(keys) + S + 2 |lse| + 4    u's in one that is recomputed from the log-sum-exp
//   y:  w + R(keys) + 4 u's of the sum of P |v|, and e of itself
//   dS = P (dP - rowsum):  the error of P, of dP (R(D) u's of |dP|) and of the rowsum. In plain that is the
//     sum of P dP, with w u's and e of each P, and R(D) + R(keys) u's of the sum of P |dP|; in flash it is
//     dy y, where y has the same errors of weights, R(D) + R(keys) + 4 u's of its sums, and e of itself
//   dq, dk, dv:  R(terms) u's more of the sums of |dS k|, |dS q| and P |dy|, and e of themselves
// Computed for every `stride`-th query and key, and for the last.
class AttentionBound {
 public:
  std::vector<double> y, dqkv;

  AttentionBound(const AttentionCase& shape, DType t, const CaseRun& exact, int64_t stride = 1)
      : c(shape),
        u(0x1p-24),
        e(roundoff_of(t)),
        scale(1 / std::sqrt(double(c.D))),
        qkv(exact_numbers(c.qkv().numel(), kQkv)),
        dy(exact_numbers(c.y().numel(), kDy)) {
    y.assign(exact.y.size(), NAN), dqkv.assign(exact.dqkv.size(), NAN);
    sizes_of_y();
    largest_keys();
    for (int64_t i = 0; i < c.B * c.heads.q; ++i) {
      const int64_t b = i / c.heads.q, h = i % c.heads.q;
      std::vector<Query> queries;
      for (int64_t t = 0; t < c.T; ++t) queries.push_back(query(b, h, t, exact));
      for (int64_t t = 0; t < c.T; ++t)
        if (t % stride == 0 || t == c.T - 1) {
          of_query(queries[t], b, h, exact);
          of_key(queries, b, h, t, exact);
        }
    }
  }

 private:
  // The index in qkv of part 0, 1 or 2 (q, k, v) for query head h, and the index of this head in y.
  int64_t at(int part, int64_t b, int64_t h, int64_t time) const {
    return (b * c.T + time) * c.qkv()[2] + c.first_column(part) + (part == 0 ? h : h / c.group()) * c.D;
  }
  int64_t out(int64_t b, int64_t h, int64_t time) const { return ((b * c.T + time) * c.heads.q + h) * c.D; }

  // The sums of P |v|, computed as attention with |v| in place of v.
  void sizes_of_y() {
    std::vector<double> of_sizes = qkv;
    for (int64_t i = 0; i < int64_t(qkv.size()); ++i)
      if (i % c.qkv()[2] >= c.first_column(2)) of_sizes[i] = std::abs(qkv[i]);
    Context context("cpu", 5);
    y_size = to_host<double>(
        attention_flash(from_host(context.device, of_sizes, c.qkv(), DType::F64, Kind::Temporary, "qkv"),
                        c.heads, c.mask, 0));
  }
  double norm(int64_t place) const {
    double squares = 0;
    for (int64_t d = 0; d < c.D; ++d) squares += qkv[place + d] * qkv[place + d];
    return std::sqrt(squares);
  }
  void largest_keys() {
    for (int64_t b = 0; b < c.B; ++b)
      for (int64_t h = 0; h < c.heads.q; ++h) {
        largest_key.push_back(0);
        for (int64_t j = 0; j < c.T; ++j)
          largest_key.back() = std::max(largest_key.back(), norm(at(1, b, h, j)));
      }
  }

  struct Query {
    int64_t keys, place, out;
    double lse, S;
    double w = 0, remade = 0;      // w and w' above
    double row = 0, size = 0;      // the rowsum, and the sum of P |dP|
    double weights = 0, of_y = 0;  // factors of the errors of weights and of y in the rowsum
  };
  Query query(int64_t b, int64_t h, int64_t t, const CaseRun& exact) const {
    Query q{.keys = c.mask == Mask::Causal ? t + 1 : c.T,
            .place = at(0, b, h, t),
            .out = out(b, h, t),
            .lse = exact.lse[(b * c.heads.q + h) * c.T + t],
            .S = scale * norm(at(0, b, h, t)) * largest_key[b * c.heads.q + h]};
    q.w = 2 * q.S * roundings(c.D) + roundings(q.keys) + 4;
    q.remade = q.w + q.S + 2 * std::abs(q.lse);
    for (int64_t i = q.out; i < q.out + c.D; ++i) {
      q.row += dy[i] * exact.y[i], q.of_y += std::abs(dy[i] * exact.y[i]);
      q.size += std::abs(dy[i]) * y_size[i];
    }
    q.weights = q.size;  // an upper bound of the sum of P |dP|
    if (c.T == kLong) return q;
    q.weights = 0;
    for (int64_t j = 0; j < q.keys; ++j) {
      const Weight x = weight(q, at(1, b, h, j), at(2, b, h, j));
      q.weights += x.P * std::abs(x.dP);
    }
    return q;
  }
  struct Weight {
    double P, dP = 0, size = 0;  // of one key; size: |dP|
  };
  Weight weight(const Query& q, int64_t k, int64_t v) const {
    Weight x{};
    double score = 0;
    for (int64_t d = 0; d < c.D; ++d) {
      const double product = dy[q.out + d] * qkv[v + d];
      score += qkv[q.place + d] * qkv[k + d], x.dP += product, x.size += std::abs(product);
    }
    x.P = std::exp(scale * score - q.lse);
    return x;
  }
  // The errors of both versions together, in scale dS (a sum of `terms` terms) and in P.
  double error_of_dS(const Query& q, const Weight& x, int64_t terms) const {
    const double R = roundings(c.D), of_P = std::abs(x.dP - q.row);
    return scale * x.P *
           (u * ((q.w + q.remade + 2 * roundings(terms)) * of_P + 2 * q.w * q.weights + 2 * R * x.size +
                 (2 * R + 2 * roundings(q.keys) + 4) * q.size) +
            e * (of_P + q.weights + q.of_y));
  }
  double error_of_P(const Query& q, const Weight& x, int64_t terms) const {
    return x.P * (u * (q.w + q.remade + 2 * roundings(terms)) + e);
  }

  void of_query(const Query& q, int64_t b, int64_t h, const CaseRun& exact) {
    for (int64_t d = 0; d < c.D; ++d) {
      y[q.out + d] =
          2 * (u * (q.w + roundings(q.keys) + 4) * y_size[q.out + d] + e * std::abs(exact.y[q.out + d]));
      dqkv[q.place + d] = 2 * e * std::abs(exact.dqkv[q.place + d]);
    }
    for (int64_t j = 0; j < q.keys; ++j) {
      const int64_t k = at(1, b, h, j);
      const double error = error_of_dS(q, weight(q, k, at(2, b, h, j)), q.keys);
      for (int64_t d = 0; d < c.D; ++d) dqkv[q.place + d] += error * std::abs(qkv[k + d]);
    }
  }
  // The part of query head h in the bound of key j.
  void of_key(const std::vector<Query>& queries, int64_t b, int64_t h, int64_t j, const CaseRun& exact) {
    const int64_t begin = c.mask == Mask::Causal ? j : 0, terms = c.group() * (c.T - begin);
    const int64_t k = at(1, b, h, j), v = at(2, b, h, j);
    for (int64_t d = 0; h % c.group() == 0 && d < c.D; ++d)
      for (const int64_t i : {k + d, v + d}) dqkv[i] = 2 * e * std::abs(exact.dqkv[i]);
    for (int64_t t = begin; t < c.T; ++t) {
      const Query& q = queries[t];
      const Weight x = weight(q, k, v);
      const double of_dS = error_of_dS(q, x, terms), of_P = error_of_P(q, x, terms);
      for (int64_t d = 0; d < c.D; ++d) {
        dqkv[k + d] += of_dS * std::abs(qkv[q.place + d]);
        dqkv[v + d] += of_P * std::abs(dy[q.out + d]);
      }
    }
  }

  AttentionCase c;
  double u, e, scale;
  std::vector<double> qkv, dy, y_size, largest_key;  // largest_key: its norm, per sample and head
};

}  // namespace gradus
