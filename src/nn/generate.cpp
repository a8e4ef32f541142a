#include "src/nn/generate.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "src/tensor/context.h"

namespace gradus {

Tensor Transformer::next_logits(const Tensor& ids, KvCache& cache) const {
  check(cache.layers_.size() == blocks.size() && cache.layers_[0].last() == 2 * config.kv_channels() &&
            cache.group_ == config.heads_per_kv(),
        "next_logits: the cache was made for a different model");
  check(ids.shape().rank() == 2 && ids.shape()[0] == cache.sequences() && ids.shape()[1] >= 1,
        "next_logits: token ids are ", ids.shape(), "; they must be (B, T) with B = ", cache.sequences(),
        ", the cache's sequences, and at least one token");
  const int64_t T = ids.shape()[1], before = cache.length();
  check(T == 1 || before == 0, "next_logits: ", T, " tokens after ", before,
        "; after the prompt, tokens are read one at a time");
  check(before + T <= cache.capacity(), "next_logits: the cache has room for ", cache.capacity(),
        " tokens of each sequence, ", before, " were read, and ", T, " more do not fit; make a larger cache");
  const Evaluation evaluation;
  std::vector<KvLayer> past = cache.past(T);
  Tensor x = embed(ids, {}, before);
  for (size_t l = 0; l < blocks.size(); ++l) x = blocks[l](x, config, &past[l]);
  x = select_token(x, T - 1);
  x = head(x);
  cache.length_ += T;
  return x;
}

static KvCache cache_for(const char* what, const Transformer& model, const std::vector<int32_t>& prompt,
                         int64_t tokens) {
  const int64_t P = int64_t(prompt.size()), context = model.config.context;
  check(P >= 1, what, ": the prompt is empty; begin with at least one token, for example a line break");
  check(tokens >= 1, what, ": ", tokens, " tokens are to be added; it must be at least one");
  check(tokens <= context - P + 1, what, ": ", tokens, " tokens after a prompt of ", P, " need a context of ",
        P, " + ", tokens, " - 1; the model's is ", context, ", so shorten one of them");
  return KvCache(model, 1, P + tokens - 1);
}

// Reads the next tokens of all sequences, and returns the log probabilities (B,V) of the tokens that follow.
static std::vector<double> read(const Transformer& model, const std::vector<int32_t>& ids, KvCache& cache,
                                double temperature) {
  const int64_t B = cache.sequences(), V = model.config.vocab;
  Device& device = current().device;
  const Tensor logits = model.next_logits(
      from_host(device, ids, {B, int64_t(ids.size()) / B}, DType::I32, Kind::Data, "tokens"), cache);
  if (!device.has_data()) return std::vector<double>(B * V, -std::log(double(V)));
  std::vector<double> p = to_host<double>(logits);
  for (auto row = p.begin(); row != p.end(); row += V) {  // x - max - log sum exp(x - max)
    const double max = *std::max_element(row, row + V);
    double sum = 0;
    for (int64_t v = 0; v < V; ++v) sum += std::exp(row[v] = (row[v] - max) / temperature);
    check(std::isfinite(sum), "generate: a logit is not finite; was the model trained or loaded?");
    for (int64_t v = 0; v < V; ++v) row[v] -= std::log(sum);
  }
  return p;
}

static int32_t draw(const std::vector<double>& log_probabilities, Rng& rng) {
  double u = rng.uniform();
  int32_t token = 0, last = int32_t(log_probabilities.size()) - 1;
  while (token < last && (u -= std::exp(log_probabilities[token])) >= 0) ++token;
  return token;
}

std::vector<int32_t> sample(const Transformer& model, const std::vector<int32_t>& prompt, int64_t tokens,
                            double temperature, Rng& rng) {
  check(temperature > 0, "sample: temperature ", temperature,
        " must be above 0; to get the most likely token each time, use beam_search with 1 beam");
  KvCache cache = cache_for("sample", model, prompt, tokens);
  std::vector<int32_t> text, next = prompt;
  for (int64_t i = 0; i < tokens; ++i) {
    next = {draw(read(model, next, cache, temperature), rng)};
    text.push_back(next[0]);
  }
  return text;
}

struct Candidate {  // a beam and its next token
  double log_probability;
  int32_t parent, token;
};

// The k most likely candidates, the most likely first. log_probabilities: (beams,V), of the next token.
static std::vector<Candidate> likeliest(int64_t k, const std::vector<Beam>& beams,
                                        const std::vector<double>& log_probabilities) {
  std::vector<Candidate> all;
  const int64_t V = int64_t(log_probabilities.size() / beams.size());
  for (int32_t b = 0; b < int32_t(beams.size()); ++b)
    for (int32_t v = 0; v < V; ++v)
      all.push_back({beams[b].log_probability + log_probabilities[b * V + v], b, v});
  std::partial_sort(all.begin(), all.begin() + k, all.end(), [](const Candidate& x, const Candidate& y) {
    return std::tuple(-x.log_probability, x.parent, x.token) <
           std::tuple(-y.log_probability, y.parent, y.token);
  });
  all.resize(k);
  return all;
}

std::vector<Beam> beam_search(const Transformer& model, const std::vector<int32_t>& prompt, int64_t tokens,
                              int64_t k) {
  check(k >= 1 && k <= model.config.vocab, "beam_search: ", k, " beams; it must be 1 to ", model.config.vocab,
        ", the vocabulary, because one token gives only so many texts");
  KvCache cache = cache_for("beam_search", model, prompt, tokens);
  std::vector<Beam> beams(1);  // the empty text
  std::vector<int32_t> next = prompt;
  for (int64_t i = 0; i < tokens; ++i) {
    const std::vector<Candidate> best = likeliest(k, beams, read(model, next, cache, 1));
    std::vector<Beam> longer;
    std::vector<int32_t> parents;
    next.clear();
    for (const Candidate& c : best) {
      longer.push_back({beams[c.parent].ids, c.log_probability});
      longer.back().ids.push_back(c.token);
      parents.push_back(c.parent);
      next.push_back(c.token);
    }
    beams = std::move(longer);
    if (i + 1 < tokens) cache = cache.select(parents);
  }
  return beams;
}

}  // namespace gradus
