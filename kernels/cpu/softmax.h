// The sum of exponentials of a row, for softmax and cross-entropy.
#pragma once
#include "kernels/cpu/io.h"

namespace gradus::cpu {

// The sum of a row's e^x is e^shift · sum. Any shift near the maximum keeps both finite.
template <class A>
struct ExpSum {
  A shift = -INFINITY, sum = 0;
};

// The largest of `most` and the row, where NaN is ignored. In lanes, because compilers do not reorder a
// maximum of floats by themselves.
template <class T>
[[gnu::flatten]] inline acc_t<T> max_of(int64_t n, const T* x, acc_t<T> most) {
  using A = acc_t<T>;
  constexpr int kLanes = 64;
  const auto larger = [](A a, A b) { return a > b ? a : b; };
  A lane[kLanes];
  std::fill_n(lane, kLanes, most);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) lane[l] = larger(load(x, i + l), lane[l]);
  }
  for (; i < n; ++i) most = larger(load(x, i), most);
  for (const A a : lane) most = larger(a, most);
  return most;
}

constexpr int64_t kExpChunk = 2048;  // elements that stay in the nearest cache

// exps[c] <- e^(x[c] - shift); returns their sum.
template <class T>
[[gnu::flatten]] inline acc_t<T> exp_chunk(int64_t n, const T* x, acc_t<T> shift, acc_t<T>* exps) {
  acc_t<T> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < n; ++c) {
    exps[c] = vexp(load(x, c) - shift);
    sum += exps[c];
  }
  return sum;
}

// One pass over memory, a chunk at a time (after Milakov & Gimelshein 2018, "Online normalizer calculation
// for softmax"). The shift is the first chunk's maximum; only a chunk so far above it that its sum is huge
// raises it, so most chunks are read once. A NaN reaches the sum; a row of only -infinity has sum 0. exps
// receives e^(x - shift) for the last chunk, which is the whole row if it has at most kExpChunk elements.
template <class T>
[[gnu::noinline]] ExpSum<acc_t<T>> exp_sum(int64_t cols, const T* x, acc_t<T>* exps) {
  using A = acc_t<T>;
  constexpr A kHuge = A(1e30);
  ExpSum<A> row;
  for (int64_t at = 0; at < cols; at += kExpChunk) {
    const int64_t n = std::min(kExpChunk, cols - at);
    A sum = at == 0 ? kHuge : exp_chunk(n, x + at, row.shift, exps);
    if (!(sum < kHuge)) {  // also if it is NaN
      const A max = max_of(n, x + at, row.shift);
      const A shift = max == -INFINITY ? A(0) : max;  // -inf - -inf would be NaN
      row.sum *= vexp(row.shift - shift);
      row.shift = max;
      sum = exp_chunk(n, x + at, shift, exps);
    }
    row.sum += sum;
  }
  return row;
}

}  // namespace gradus::cpu
