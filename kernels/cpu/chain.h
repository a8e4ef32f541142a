// The code of a chain, which src/train/chain_code.cpp writes, includes this file: the rows of its buffers,
// and the loops over them.
#pragma once
#include "kernels/cpu/gelu.h"
#include "kernels/cpu/layernorm.h"
#include "kernels/cpu/random_words.h"

namespace gradus::cpu {

// The k-th sum of each column: over partition p of the rows, or, if p is the number of partitions, over all.
template <class A>
A* column_sum(const Ctx& ctx, RowShape s, int k, int64_t p) {
  return static_cast<A*>(ctx.scratch) + (k * (cost::partitions(s.rows) + 1) + p) * s.cols;
}
template <Write W, class Y, class A>
void write_column_sum(const Ctx& ctx, RowShape s, int k, void* y) {
  const int64_t P = cost::partitions(s.rows);
  sum_partitions(P, s.cols, column_sum<A>(ctx, s, k, 0), column_sum<A>(ctx, s, k, P));
  copy_row<W>(s.cols, column_sum<A>(ctx, s, k, P), static_cast<Y*>(y));
}

// A row of the chain's buffers: `cols` elements, from element `first` of all on. A chain that is only
// element-wise has one row; each thread takes a part of it.
struct ChainRow {
  const Ctx& ctx;
  const KernelChain& chain;
  RowShape s;
  int64_t partition, r, first, cols;

  template <class T>
  T* at(int k) const {
    return static_cast<T*>(chain.p[k]) + first % chain.width[k];
  }
  template <class A>
  A* statistics(int k) const {
    return chain.p[k] ? static_cast<A*>(chain.p[k]) + 2 * r : nullptr;
  }
  template <class A>
  A* sum(int k) const {
    return column_sum<A>(ctx, s, k, partition);
  }
  // Dropout's random bits for the row's elements [at, at + n), n <= kChunk, in the chain's call i.
  void random_words(int i, int64_t at, int64_t n, uint32_t* to) const {
    const RandomKey& key = chain.key[i];
    const int64_t element = first + at, per_sample = chain.per_sample[i];
    each_word(key, key.step_in(*ctx.scalars), key.first_sample + element / per_sample, element % per_sample,
              n,
              [to](int64_t e, int64_t count, const uint32_t* words) { std::copy_n(words, count, to + e); });
  }
};

// Calls f(row) for all rows of a chain that has `sums` sums of columns.
template <class A, class F>
void run_rows(const Ctx& ctx, RowShape s, const KernelChain& chain, int sums, F f) {
  for_partitions(s, [&](int64_t p, int64_t begin, int64_t end) {
    for (int k = 0; k < sums; ++k) std::fill_n(column_sum<A>(ctx, s, k, p), s.cols, A(0));
    for (int64_t r = begin; r < end; ++r) f(ChainRow{ctx, chain, s, p, r, r * s.cols, s.cols});
  });
}
// For a chain that is only element-wise: calls f for each thread's part.
template <class F>
void run_elements(const Ctx& ctx, RowShape s, const KernelChain& chain, F f) {
  parallel_for(s.cols, kGrain, [&](int64_t begin, int64_t end) {
    f(ChainRow{ctx, chain, s, 0, 0, begin, end - begin});
  });
}

}  // namespace gradus::cpu
