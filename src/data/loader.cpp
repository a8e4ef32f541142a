#include "src/data/loader.h"

#include <algorithm>

#include "src/core/rng.h"

namespace gradus {

Loader::Loader(const Corpus& corpus, int64_t T, uint64_t seed) : corpus_(corpus), T_(T), seed_(seed) {
  check(T >= 1, "loader: a window of ", T, " bytes; it needs at least 1");
  const int64_t train = corpus.split, held_out = int64_t(corpus.bytes.size()) - train;
  check(train >= T + 1 && held_out >= 1, "loader: the corpus has ", train, " training bytes and ", held_out,
        " held out; windows of ", T, " need at least ", T + 1,
        " and 1. Give it more text, or a shorter context");
}

// The window that begins at byte `start`.
void Loader::fill(int64_t start, int32_t* inputs, int32_t* targets) const {
  for (int64_t t = 0; t < T_; ++t) {
    inputs[t] = uint8_t(corpus_.bytes[size_t(start + t)]);
    targets[t] = uint8_t(corpus_.bytes[size_t(start + t + 1)]);
  }
}

void Loader::train_windows(int64_t step, int64_t first, int64_t count, int32_t* inputs,
                           int32_t* targets) const {
  constexpr uint64_t kStream = 0xDA7A;  // of the seed's streams; the counter below has room for 2^32 samples
  for (int64_t i = 0; i < count; ++i) {
    Rng rng(seed_, kStream, (uint64_t(step) << 32) + uint64_t(first + i));
    const uint64_t starts = uint64_t(corpus_.split - T_);
    // Not Rng::below, which may draw twice and so use the next sample's number; the bias here is below 2^-33.
    fill(int64_t(rng.bits64() % starts), inputs + i * T_, targets + i * T_);
  }
}

int64_t Loader::all_windows() const {
  const int64_t bytes = int64_t(corpus_.held_out().size());
  return (bytes + stride() - 1) / stride();
}

int64_t Loader::held_out_windows() const {
  return std::min(all_windows(), std::max<int64_t>(kMostScored / stride(), 1));
}

int64_t Loader::scored_bytes() const {  // the shorter window at the end is taken only if all are
  return std::min(int64_t(corpus_.held_out().size()), held_out_windows() * stride());
}

std::vector<int64_t> Loader::held_out_windows(int64_t first, int64_t count, int32_t* inputs,
                                              int32_t* targets) const {
  const int64_t size = int64_t(corpus_.bytes.size());
  const int64_t windows = held_out_windows(), last = windows - 1;
  std::vector<int64_t> scored;
  for (int64_t w = first; w < first + count; ++w) {
    const int64_t drawn = std::min(w, last) * all_windows() / windows;
    const int64_t begin = corpus_.split + drawn * stride();  // the bytes this window scores
    const int64_t end = std::min(begin + stride(), size);
    fill(end - 1 - T_, inputs, targets);  // so that the last target is byte end - 1
    scored.push_back(w <= last ? end - begin : 0);
    inputs += T_, targets += T_;
  }
  return scored;
}

}  // namespace gradus
