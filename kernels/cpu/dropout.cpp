#include "kernels/cpu/io.h"
#include "kernels/philox.h"

namespace gradus::cpu {

template <class T, Write W>
static void dropout_block(const T* in, T* out, int64_t begin, int64_t end, const Philox4& words, float p) {
  const acc_t<T> factor = acc_t<T>(1) / (acc_t<T>(1) - acc_t<T>(p));
  for (int64_t i = begin; i < end; ++i)
    store<W>(out, i, uniform01(words[i - begin]) >= p ? load(in, i) * factor : acc_t<T>(0));
}

void dropout(const Ctx& ctx, RowShape s, CBuf x, Out y, float p, RandomKey key) {
  check_dtype("dropout", y.t, x.t, x.p, "x");
  if (!y.wanted()) return;
  const int64_t blocks = (s.cols + 3) / 4;  // of a sample
  visit_float("dropout", y.t, [&]<class T>() {
    visit_write(y.w, [&]<Write W>() {
      parallel_for(s.rows * blocks, kGrain / 16, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          const int64_t sample = b / blocks, block = b % blocks, at = sample * s.cols + 4 * block;
          const Philox4 words = dropout_words(key.seed, ctx.scalars->step, key.ordinal,
                                              ctx.scalars->first_sample + sample, block);
          dropout_block<T, W>(x.as<T>(), y.as<T>(), at, std::min(at + 4, (sample + 1) * s.cols), words, p);
        }
      });
    });
  });
}

}  // namespace gradus::cpu
