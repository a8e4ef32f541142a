#include "kernels/cpu/io.h"
#include "kernels/cpu/random_words.h"

namespace gradus::cpu {

template <Write W, class T>
[[gnu::flatten, gnu::noinline]] static void keep_or_drop(int64_t n, const uint32_t* words, float p,
                                                         const T* x, T* y) {
  using A = acc_t<T>;
  const A factor = A(1) / (A(1) - A(p));
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store<W>(y, i, uniform01(words[i]) >= p ? load(x, i) * factor : A(0));
}

void dropout(const Ctx& ctx, RowShape s, CBuf x, Out y, float p, RandomKey key) {
  check_dropout(x, y, p);
  const int64_t pieces = (s.cols + 4 * kBlocks - 1) / (4 * kBlocks);  // per sample
  const int64_t step = key.step_in(*ctx.scalars);
  visit_out("dropout", y, [&]<class T, Write W>() {
    parallel_for(s.rows * pieces, kGrain / (16 * kBlocks), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t sample = i / pieces, from = i % pieces * 4 * kBlocks;
        const T* const in = x.as<T>() + sample * s.cols + from;
        T* const out = y.as<T>() + sample * s.cols + from;
        each_word(key, step, key.first_sample + sample, from, std::min(4 * kBlocks, s.cols - from),
                  [=](int64_t e, int64_t n, const uint32_t* words) {
                    keep_or_drop<W>(n, words, p, in + e, out + e);
                  });
      }
    });
  });
}

}  // namespace gradus::cpu
