// Generates text token by token, with a KvCache for all tokens but the last, which the model never reads. All
// functions need a prompt of at least one token and add at least one token; together they are at most one
// more than the model's context. On meta, which has no numbers, all tokens are equally likely.
#pragma once
#include <vector>

#include "src/core/rng.h"
#include "src/nn/kv_cache.h"

namespace gradus {

// Returns the tokens after the prompt, each drawn from softmax(logits / temperature). At temperature 1 the
// probabilities are the model's; below 1 likely tokens become more likely.
std::vector<int32_t> sample(const Transformer&, const std::vector<int32_t>& prompt, int64_t tokens,
                            double temperature, Rng&);

struct Beam {
  std::vector<int32_t> ids;    // the tokens after the prompt
  double log_probability = 0;  // of all ids, given the prompt: the sum over tokens, in nats
};
// Returns likely texts after the prompt, the most likely first. After each token the search keeps the `beams`
// most likely texts, each with its own copy of the keys and values of the text that it continues. So the
// cache is `beams` times as large, and twice that while the texts are reordered. 1 beam: always the most
// likely token ("greedy"). At most vocab beams.
std::vector<Beam> beam_search(const Transformer&, const std::vector<int32_t>& prompt, int64_t tokens,
                              int64_t beams);

}  // namespace gradus
