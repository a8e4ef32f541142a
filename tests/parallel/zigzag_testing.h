// For tests of ring attention and context parallelism: a rank's tokens of a sequence.
#pragma once
#include <vector>

#include "src/parallel/ring_attention.h"

namespace gradus {

inline std::vector<int64_t> tokens_of(int64_t T, int64_t rank, int64_t ranks) {
  const Zigzag z = zigzag(T, rank, ranks);
  std::vector<int64_t> all;
  for (const int64_t begin : z.begin)
    for (int64_t i = 0; i < z.count; ++i) all.push_back(begin + i);
  return all;
}
// A rank's tokens of x (B,T,C), in the order of its chunks.
template <class T>
std::vector<T> chunks(const std::vector<T>& x, int64_t B, int64_t tokens, int64_t C, int64_t rank,
                      int64_t ranks) {
  std::vector<T> own;
  for (int64_t b = 0; b < B; ++b)
    for (const int64_t t : tokens_of(tokens, rank, ranks))
      own.insert(own.end(), x.begin() + (b * tokens + t) * C, x.begin() + (b * tokens + t + 1) * C);
  return own;
}

}  // namespace gradus
