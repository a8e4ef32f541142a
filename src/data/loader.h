// Windows of tokens: T inputs and, for each of them, the token that follows it (its target).
#pragma once
#include <cstdint>
#include <vector>

#include "src/data/tokens.h"

namespace gradus {

class Loader {
 public:
  // If `tokens` is a corpus, each of its bytes is a token, and the corpus must outlive this. Needs at least
  // T + 1 training tokens and one held-out token.
  Loader(Tokens tokens, int64_t T, uint64_t seed);

  // The training windows of step `step`, samples first .. first + count - 1 of its batch: inputs and targets
  // are [count, T]. Window starts are uniform over the training tokens. Each is a function of (seed, step,
  // sample) only, so training resumes without any state, and micro-batches or ranks that divide the samples
  // of a step see the same windows as one big batch.
  void train_windows(int64_t step, int64_t first, int64_t count, int32_t* inputs, int32_t* targets) const;

  // The held-out tokens are cut into windows that score each token exactly once, with at least T/2 tokens of
  // context: window w scores only its last scored[w] rows (T - T/2; fewer in the last window, which is
  // aligned to the end). The first window begins with the last training tokens. If there are more than
  // kMostScored held-out tokens, only as many windows as score that many are used, spread evenly over the
  // text; the choice depends only on the text, not on a seed.
  static constexpr int64_t kMostScored = int64_t(256) << 10;
  int64_t held_out_windows() const;
  int64_t scored_tokens() const;
  const Tokens& tokens() const { return tokens_; }
  // Fills [count, T] inputs and targets with windows first .. first + count - 1 and returns, for each, the
  // number of last rows that it scores. Windows after the last are copies of it with 0 scored rows, so that
  // all batches of an evaluation can have the same shape.
  std::vector<int64_t> held_out_windows(int64_t first, int64_t count, int32_t* inputs,
                                        int32_t* targets) const;

 private:
  int64_t stride() const { return T_ - T_ / 2; }  // tokens that a held-out window scores
  int64_t all_windows() const;
  void fill(int64_t start, int32_t* inputs, int32_t* targets) const;

  Tokens tokens_;
  int64_t T_;
  uint64_t seed_;
};

}  // namespace gradus
