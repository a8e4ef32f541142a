// Common parts of the loader's tests: random text, and what a loader writes.
#pragma once
#include "src/core/rng.h"
#include "src/data/loader.h"

namespace gradus {

inline Corpus random_corpus(int64_t train, int64_t held_out) {
  Corpus corpus;
  Rng rng(17, uint64_t(train));
  for (int64_t i = 0; i < train + held_out; ++i) corpus.bytes += char(rng.below(256));
  corpus.split = train;
  return corpus;
}

struct Windows {
  std::vector<int32_t> inputs, targets;
  explicit Windows(int64_t count) : inputs(size_t(count), -7), targets(size_t(count), -7) {}
  bool operator==(const Windows&) const = default;
};

inline Windows training(const Loader& loader, int64_t step, int64_t first, int64_t count, int64_t T) {
  Windows w(count * T);
  loader.train_windows(step, first, count, w.inputs.data(), w.targets.data());
  return w;
}

}  // namespace gradus
