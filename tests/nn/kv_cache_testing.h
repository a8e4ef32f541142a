// The difference between the logits with a cache and those of the whole text.
#pragma once
#include <cmath>

#include "tests/nn/generate_testing.h"

namespace gradus {

// Columns [begin, begin + count) of ids (B,T).
inline Tensor part_of(const std::vector<int32_t>& ids, int64_t B, int64_t begin, int64_t count) {
  const int64_t T = int64_t(ids.size()) / B;
  std::vector<int32_t> part;
  for (int64_t i = 0; i < B * count; ++i) part.push_back(ids[i / count * T + begin + i % count]);
  return ids_of(part, {B, count});
}

inline double epsilon_of(DType t) {  // half the distance from 1 to the next number
  return t == DType::F64 ? 0x1p-53 : t == DType::F32 ? 0x1p-24 : t == DType::BF16 ? 0x1p-8 : 0x1p-11;
}

// Reads a prompt at once and the rest token by token; returns the largest error / allowed error of a logit,
// in %. The results differ only by attention: its sums of D and of T products are taken in a different order,
// and its result is rounded to the dtype at a different place; later layers magnify both errors.
inline double budget_used(const TransformerConfig& config, int64_t prompt) {
  Transformer model(config);
  randomize(model, 1);
  const int64_t B = 3, T = config.context, V = config.vocab, D = config.channels / config.heads;
  const std::vector<int32_t> ids = random_ids(B * T, V);
  const std::vector<double> want = to_host<double>(model.logits(ids_of(ids, {B, T})));
  double largest = 0, worst = 0;
  for (const double x : want) largest = std::max(largest, std::abs(x));
  const DType sums = statistics_dtype(config.precision.value);
  const double allowed = double(config.layers) * largest *
                         (double(T + D) * epsilon_of(sums) +
                          (config.precision.value == sums ? 0 : 4 * epsilon_of(config.precision.value)));
  KvCache cache(model, B, T);
  for (int64_t t = prompt - 1; t < T; ++t) {
    const bool first = t == prompt - 1;
    const Tensor logits = model.next_logits(part_of(ids, B, first ? 0 : t, first ? prompt : 1), cache);
    EXPECT_EQ(logits.shape(), (Shape{B, V}));
    EXPECT_EQ(cache.length(), t + 1);
    const std::vector<double> got = to_host<double>(logits);
    for (int64_t i = 0; i < B * V; ++i)
      worst = std::max(worst, std::abs(got[i] - want[(i / V * T + t) * V + i % V]) / allowed);
  }
  return 100 * worst;
}

}  // namespace gradus
