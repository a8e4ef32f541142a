// Text from a model, token by token, over a KvCache that holds all tokens but the last, which is never read.
// All of this takes a prompt of at least one token and at least one token to add; together they must be at
// most one more than the model's context. On meta, where there are no numbers, every token counts as equally
// likely.
#pragma once
#include <vector>

#include "src/core/rng.h"
#include "src/nn/kv_cache.h"

namespace gradus {

// What follows the prompt: each token drawn from softmax(logits / temperature). Below 1 the likely tokens
// become likelier; at 1 they are as likely as the model says.
std::vector<int32_t> sample(const Transformer&, const std::vector<int32_t>& prompt, int64_t tokens,
                            double temperature, Rng&);

struct Beam {
  std::vector<int32_t> ids;    // what follows the prompt
  double log_probability = 0;  // of all of them, given the prompt: the sum over tokens, in nats
};
// What likely follows the prompt, the likeliest first. After each token the `beams` likeliest texts are kept,
// each with a copy of the keys and values of the text it continues, so it needs `beams` times the cache, and
// twice that while they are reordered. 1 beam: always the likeliest token ("greedy"). At most vocab beams.
std::vector<Beam> beam_search(const Transformer&, const std::vector<int32_t>& prompt, int64_t tokens,
                              int64_t beams);

}  // namespace gradus
