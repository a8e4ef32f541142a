// The maximum and the sum of exponentials of a row: what softmax and cross-entropy share.
#pragma once
#include "kernels/cpu/io.h"

namespace gradus::cpu {

template <class A>
struct ExpSum {
  A max = -INFINITY, sum = 0;  // the row's sum of e^x is e^max · sum
};

constexpr int64_t kExpChunk = 2048;  // elements that are read twice, from the nearest cache

// One pass over memory, chunk by chunk; the sum so far is scaled whenever a chunk raises the maximum (Milakov
// & Gimelshein 2018, "Online normalizer calculation for softmax"). Taking the maximum out keeps everything
// finite. A NaN reaches the sum; a row of -infinity only has sum 0.
// exps receives the last chunk's e^(x - max), which are all of them in a row of at most kExpChunk.
template <class T>
[[gnu::flatten, gnu::noinline]] ExpSum<acc_t<T>> exp_sum(int64_t cols, const T* x, acc_t<T>* exps) {
  using A = acc_t<T>;
  ExpSum<A> row;
  for (int64_t at = 0; at < cols; at += kExpChunk) {
    const T* chunk = x + at;
    const int64_t n = std::min(kExpChunk, cols - at);
    A max = row.max, sum = 0;
#pragma omp simd reduction(max : max)
    for (int64_t c = 0; c < n; ++c) max = std::max(max, load(chunk, c));
    const A shift = max == -INFINITY ? A(0) : max;  // -inf - -inf would be NaN
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < n; ++c) {
      exps[c] = vexp(load(chunk, c) - shift);
      sum += exps[c];
    }
    row.sum = row.sum * vexp(row.max - shift) + sum;
    row.max = max;
  }
  return row;
}

}  // namespace gradus::cpu
