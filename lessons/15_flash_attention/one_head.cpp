#include "lessons/15_flash_attention/one_head.h"

#include <algorithm>

#include "src/core/rng.h"

namespace gradus {

using Floats = std::vector<float>;

Head Head::random(int64_t T, int64_t D, uint64_t seed) {
  Rng rng(seed, 0);
  const auto numbers = [&] {
    Floats x(size_t(T * D));
    for (float& each : x) each = float(rng.normal());
    return x;
  };
  return {T, D, numbers(), numbers(), numbers()};
}

// Rows [first, first + count) of x, now on chip.
static Floats load_rows(const Head& h, const Floats& x, int64_t first, int64_t count, Memory& memory) {
  Floats rows(size_t(count * h.D));
  for (int64_t e = 0; e < count * h.D; ++e) rows[size_t(e)] = memory.load(x, first * h.D + e);
  return rows;
}
static void store_rows(const Head& h, const Floats& rows, int64_t first, Floats& x, Memory& memory) {
  for (int64_t e = 0; e < int64_t(rows.size()); ++e) memory.store(x, first * h.D + e, rows[size_t(e)]);
}
static float score(const Head& h, const float* q, const float* k) {
  float sum = 0;
  for (int64_t d = 0; d < h.D; ++d) sum += q[d] * k[d];
  return sum / std::sqrt(float(h.D));
}
static void add_weighted(const Head& h, float weight, const float* v, float* y) {
  for (int64_t d = 0; d < h.D; ++d) y[d] += weight * v[d];
}

void Softmax::add(float x) {
  // BEGIN SOLUTION 15.1
  const float before = max;
  max = std::max(max, x);
  sum = sum * std::exp(before - max) + std::exp(x - max);
  // STUB: todo("15.1", "the new maximum, and the sum corrected for it", x);
  // END SOLUTION 15.1
}

// f(first, count, queries) for each group of queries that is on chip at a time.
template <class F>
static void each_group(const Head& h, int64_t rows, Memory& memory, F f) {
  for (int64_t first = 0; first < h.T; first += rows) {
    const int64_t count = std::min(rows, h.T - first);
    f(first, count, load_rows(h, h.q, first, count, memory));
  }
}

// y of a group, from its stored scores and what is known of their softmax.
static Floats weighted_values(const Head& h, int64_t count, const Floats& scores,
                              const std::vector<Softmax>& softmax, Memory& memory) {
  Floats y(size_t(count * h.D));
  for (int64_t j = 0; j < h.T; ++j) {
    const Floats v = load_rows(h, h.v, j, 1, memory);
    for (int64_t i = 0; i < count; ++i) {
      const Softmax& s = softmax[size_t(i)];
      const float weight = std::exp(memory.load(scores, i * h.T + j) - s.max) / s.sum;
      add_weighted(h, weight, v.data(), &y[size_t(i * h.D)]);
    }
  }
  return y;
}

Floats two_passes(const Head& h, int64_t rows, Memory& memory) {
  Floats y(h.q.size()), scores(size_t(rows * h.T));  // of a group; the next one's are stored over them
  each_group(h, rows, memory, [&](int64_t first, int64_t count, const Floats& q) {
    for (int64_t j = 0; j < h.T; ++j) {
      const Floats k = load_rows(h, h.k, j, 1, memory);
      for (int64_t i = 0; i < count; ++i)
        memory.store(scores, i * h.T + j, score(h, &q[size_t(i * h.D)], k.data()));
    }
    std::vector<Softmax> softmax(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      Softmax& s = softmax[size_t(i)];
      for (int64_t j = 0; j < h.T; ++j) s.max = std::max(s.max, memory.load(scores, i * h.T + j));
      for (int64_t j = 0; j < h.T; ++j) s.sum += std::exp(memory.load(scores, i * h.T + j) - s.max);
    }
    store_rows(h, weighted_values(h, count, scores, softmax, memory), first, y, memory);
  });
  return y;
}

Floats online(const Head& h, int64_t rows, Memory& memory) {
  Floats y(h.q.size()), scores(size_t(rows * h.T));
  each_group(h, rows, memory, [&](int64_t first, int64_t count, const Floats& q) {
    std::vector<Softmax> softmax(static_cast<size_t>(count));
    for (int64_t j = 0; j < h.T; ++j) {
      const Floats k = load_rows(h, h.k, j, 1, memory);
      for (int64_t i = 0; i < count; ++i) {
        const float x = score(h, &q[size_t(i * h.D)], k.data());
        softmax[size_t(i)].add(x);
        memory.store(scores, i * h.T + j, x);
      }
    }
    store_rows(h, weighted_values(h, count, scores, softmax, memory), first, y, memory);
  });
  return y;
}

// A query meets a tile: its scores, and the values they belong to, (scores, D). y is the sum of e^(score -
// max) v over all keys up to now.
static void join(const Head& h, const Floats& scores, const Floats& v, Softmax& softmax, float* y) {
  // BEGIN SOLUTION 15.4
  const float before = softmax.max;
  for (const float x : scores) softmax.max = std::max(softmax.max, x);
  const float correction = std::exp(before - softmax.max);
  softmax.sum *= correction;
  for (int64_t d = 0; d < h.D; ++d) y[d] *= correction;
  for (size_t j = 0; j < scores.size(); ++j) {
    const float weight = std::exp(scores[j] - softmax.max);
    softmax.sum += weight;
    add_weighted(h, weight, &v[j * size_t(h.D)], y);
  }
  // STUB: todo("15.4", "the maximum with the tile's scores, what was summed before corrected for it, the tile added", &scores, &v, &softmax, y, h.D);
  // END SOLUTION 15.4
}

Floats tiles(const Head& h, int64_t rows, int64_t cols, Memory& memory) {
  Floats out(h.q.size());
  each_group(h, rows, memory, [&](int64_t first, int64_t count, const Floats& q) {
    std::vector<Softmax> softmax(static_cast<size_t>(count));
    Floats y(size_t(count * h.D));
    for (int64_t j0 = 0; j0 < h.T; j0 += cols) {
      const int64_t keys = std::min(cols, h.T - j0);
      const Floats k = load_rows(h, h.k, j0, keys, memory), v = load_rows(h, h.v, j0, keys, memory);
      for (int64_t i = 0; i < count; ++i) {
        Floats scores;
        for (int64_t j = 0; j < keys; ++j)
          scores.push_back(score(h, &q[size_t(i * h.D)], &k[size_t(j * h.D)]));
        join(h, scores, v, softmax[size_t(i)], &y[size_t(i * h.D)]);
      }
    }
    for (int64_t i = 0; i < count; ++i)
      for (int64_t d = 0; d < h.D; ++d) y[size_t(i * h.D + d)] /= softmax[size_t(i)].sum;
    store_rows(h, y, first, out, memory);
  });
  return out;
}

std::vector<double> in_fp64(const Head& h) {
  std::vector<double> y(h.q.size());
  for (int64_t t = 0; t < h.T; ++t) {
    std::vector<double> x(static_cast<size_t>(h.T));
    for (int64_t j = 0; j < h.T; ++j)
      for (int64_t d = 0; d < h.D; ++d)
        x[size_t(j)] += double(h.q[size_t(t * h.D + d)]) * h.k[size_t(j * h.D + d)] / std::sqrt(double(h.D));
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double each : x) sum += std::exp(each - max);
    for (int64_t j = 0; j < h.T; ++j)
      for (int64_t d = 0; d < h.D; ++d)
        y[size_t(t * h.D + d)] += std::exp(x[size_t(j)] - max) / sum * h.v[size_t(j * h.D + d)];
  }
  return y;
}

int64_t predicted_loads(Program program, int64_t T, int64_t D, int64_t rows) {
  const int64_t groups = (T + rows - 1) / rows, vectors = T * D + groups * 2 * T * D;  // q; k and v
  return vectors + (program == Program::TwoPasses ? 3 : program == Program::Online ? 1 : 0) * T * T;
}
int64_t predicted_stores(Program program, int64_t T, int64_t D) {
  return T * D + (program == Program::Tiles ? 0 : T * T);
}

}  // namespace gradus
