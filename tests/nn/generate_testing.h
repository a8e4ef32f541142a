// Small models with a cache, for the tests of the cache and of generation.
#pragma once
#include <gtest/gtest.h>

#include <functional>

#include "src/core/rng.h"
#include "src/nn/kv_cache.h"
#include "src/tensor/context.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {

const TransformerConfig kGpt{.vocab = 31, .context = 13, .layers = 2, .heads = 3, .channels = 21};
const TransformerConfig kNeoX{.vocab = 29,
                              .context = 11,
                              .layers = 3,
                              .heads = 2,
                              .channels = 10,
                              .attention = attention_flash,
                              .residual = Residual::Parallel,
                              .output_head = OutputHead::Untied,
                              .activation = gelu_erf,
                              .rotary = 4};
inline TransformerConfig with_dtype(TransformerConfig config, DType t) {
  config.precision = uniform(t);
  return config;
}

// Weights so large that attention is far from uniform and every bias counts.
inline void randomize(Transformer& model, uint64_t seed) {
  if (!current().device.has_data()) return;
  uint64_t stream = 0;
  for (Parameter& p : model.parameters) {
    Rng rng(seed, ++stream);
    std::vector<double> values(p.value.numel());
    for (double& v : values) v = 0.5 * rng.normal();
    Tensor kept = p.kept();
    copy_from_host(kept, values);
    p.round_master();
  }
}

inline std::vector<int32_t> random_ids(int64_t n, int64_t vocab) {
  Rng rng(5, uint64_t(n));
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = int32_t(rng.below(uint64_t(vocab)));
  return ids;
}
}  // namespace gradus
