// Windows of tokens: T inputs and the T tokens that follow each of them (its targets).
#pragma once
#include <cstdint>
#include <vector>

#include "src/data/tokens.h"

namespace gradus {

class Loader {
 public:
  // Of a corpus: each byte is a token, and it must outlive this. Needs at least T + 1 tokens to train on and
  // one held out.
  Loader(Tokens tokens, int64_t T, uint64_t seed);

  // The training windows of step `step`, samples first .. first + count - 1 of its batch: inputs and targets
  // are [count, T]. Window starts are uniform over the training tokens, and each is a function of (seed,
  // step, sample) alone: training resumes without any state, and micro-batches or ranks that share out the
  // samples of a step see the same windows as one big batch.
  void train_windows(int64_t step, int64_t first, int64_t count, int32_t* inputs, int32_t* targets) const;

  // The held-out tokens cut into windows that score each exactly once, with at least T/2 tokens of
  // context: window w scores only its last rows, scored[w] of them (T - T/2; fewer in the last window, which
  // is aligned to the end). The first window begins with the last training tokens. Of a text
  // with more than kMostScored held-out tokens not all windows are taken, but as many as score that many,
  // evenly drawn over it; only the text decides which, no seed.
  static constexpr int64_t kMostScored = int64_t(256) << 10;
  int64_t held_out_windows() const;
  int64_t scored_tokens() const;
  const Tokens& tokens() const { return tokens_; }
  // Fills [count, T] inputs and targets with windows first .. first + count - 1 and returns how many of the
  // last rows of each count. Windows past the last are copies of it with 0 scored rows, so that every batch
  // of an evaluation may have one shape.
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
