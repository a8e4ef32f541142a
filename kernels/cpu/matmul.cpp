#include "kernels/cpu/gemm.h"
#include "kernels/cpu/io.h"

namespace gradus::cpu {

template <class T, class TC>
static GemmProblem<T, T, TC> problem_of(const MatmulShape& s, const T* a, const T* b, TC* c, Write w) {
  const bool ta = s.ta == Trans::Yes, tb = s.tb == Trans::Yes;
  return {.M = s.M,
          .N = s.N,
          .K = s.K,
          .a = a,
          .a_row = ta ? 1 : s.lda,
          .a_col = ta ? s.lda : 1,
          .b = b,
          .b_row = tb ? 1 : s.ldb,
          .b_col = tb ? s.ldb : 1,
          .c = c,
          .ldc = s.ldc,
          .alpha = s.alpha,
          .write = w};
}

template <class T, class TC>
static void batched(const Ctx& ctx, const MatmulShape& s, const T* a, const T* b, TC* c, Write w) {
  const Batch &outer = s.batch[0], &inner = s.batch[1];
  const int64_t count = outer.count * inner.count;
  const auto product = [&](int64_t i, void* workspace, int64_t bytes) {
    const int64_t o = i / inner.count, n = i % inner.count;
    gemm(problem_of(s, a + o * outer.stride_a + n * inner.stride_a,
                    b + o * outer.stride_b + n * inner.stride_b, c + o * outer.stride_c + n * inner.stride_c,
                    w),
         workspace, bytes);
  };
  // Few products: each one runs on all threads. Many: each thread takes some, with a share of the workspace.
  const int64_t sharers = std::min<int64_t>(thread_count(), 8), share = kWorkspaceBytes / sharers / 64 * 64;
  if (count < 2 * sharers) {
    for (int64_t i = 0; i < count; ++i) product(i, ctx.workspace, kWorkspaceBytes);
    return;
  }
  parallel_for(sharers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t i = count * t / sharers; i < count * (t + 1) / sharers; ++i)
        product(i, static_cast<char*>(ctx.workspace) + t * share, share);
  });
}

// The table's entry is the hand-written product for every dtype. Over the shapes of GPT-2's training step it
// reached 0.88 to 1.06 of oneDNN 2.6's fp32 speed (2 cores, AVX-512). Its Write::Add is exact, and a row's
// result does not depend on other rows; oneDNN promises neither. Lesson 01 compares square products.
void matmul(const Ctx& ctx, const MatmulShape& s, CBuf a, CBuf b, Out c) {
  if (!c.wanted()) return;
  check_matmul(s, a, b, c);
  visit_float("matmul", a.t, [&]<class T>() {
    if (c.t == a.t)
      batched(ctx, s, a.as<T>(), b.as<T>(), c.as<T>(), c.w);
    else if constexpr (sizeof(T) == 2)
      batched(ctx, s, a.as<T>(), b.as<T>(), c.as<float>(), c.w);
  });
}

}  // namespace gradus::cpu
