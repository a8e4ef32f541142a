#include "src/data/loader.h"

#include <algorithm>
#include <utility>

#include "src/core/rng.h"

namespace gradus {

Loader::Loader(Tokens tokens, int64_t T, uint64_t seed) : tokens_(std::move(tokens)), T_(T), seed_(seed) {
  check(T >= 1, "loader: a window of ", T, " tokens; it needs at least 1");
  const int64_t train = tokens_.split(), held_out = tokens_.held_out();
  check(train >= T + 1 && held_out >= 1, "loader: there are ", train, " tokens to train on and ", held_out,
        " held out; windows of ", T, " need at least ", T + 1,
        " and 1. Give it more text, or a shorter context");
}

// The window that begins at token `start`.
void Loader::fill(int64_t start, int32_t* inputs, int32_t* targets) const {
  tokens_.copy(start, T_, inputs);
  tokens_.copy(start + 1, T_, targets);
}

void Loader::train_windows(int64_t step, int64_t first, int64_t count, int32_t* inputs,
                           int32_t* targets) const {
  constexpr uint64_t kStream = 0xDA7A;  // the seed's stream; the counter below has room for 2^32 samples
  for (int64_t i = 0; i < count; ++i) {
    Rng rng(seed_, kStream, (uint64_t(step) << 32) + uint64_t(first + i));
    const uint64_t starts = uint64_t(tokens_.split() - T_);
    // Not Rng::below, which may draw twice and so use the next sample's number; the bias here is below 2^-33.
    fill(int64_t(rng.bits64() % starts), inputs + i * T_, targets + i * T_);
  }
}

int64_t Loader::all_windows() const { return (tokens_.held_out() + stride() - 1) / stride(); }

int64_t Loader::held_out_windows() const {
  return std::min(all_windows(), std::max<int64_t>(kMostScored / stride(), 1));
}

int64_t Loader::scored_tokens() const {  // the shorter window at the end is used only if all are
  return std::min(tokens_.held_out(), held_out_windows() * stride());
}

std::vector<int64_t> Loader::held_out_windows(int64_t first, int64_t count, int32_t* inputs,
                                              int32_t* targets) const {
  const int64_t windows = held_out_windows(), last = windows - 1;
  std::vector<int64_t> scored;
  for (int64_t w = first; w < first + count; ++w) {
    const int64_t drawn = std::min(w, last) * all_windows() / windows;
    const int64_t begin = tokens_.split() + drawn * stride();  // the tokens this window scores
    const int64_t end = std::min(begin + stride(), tokens_.size());
    fill(end - 1 - T_, inputs, targets);  // so that the last target is token end - 1
    scored.push_back(w <= last ? end - begin : 0);
    inputs += T_, targets += T_;
  }
  return scored;
}

}  // namespace gradus
