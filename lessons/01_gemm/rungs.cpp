#include "lessons/01_gemm/rungs.h"

#ifdef GRADUS_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

#include <algorithm>

#include "kernels/cpu/cpu.h"
#include "lessons/01_gemm/blocked.h"
#include "src/tensor/context.h"

namespace gradus {

// Rung 1. One element of C at a time. The inner loop walks down a column of B: each step touches another
// cache line and uses 4 of its 64 bytes.
static void naive(int64_t n, const float* a, const float* b, float* c) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      // BEGIN SOLUTION 01.1
      for (int64_t k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      // STUB: todo("01.1", "sum a[i,k] b[k,j] over k", a, b);
      // END SOLUTION 01.1
      c[i * n + j] = sum;
    }
}

// Rung 2. The same sums with j innermost: B and C are walked along rows, and the compiler uses vectors.
static void reordered(int64_t n, const float* a, const float* b, float* c) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) {
    std::fill(c + i * n, c + (i + 1) * n, 0.0f);
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
  }
}

// Rung 3. Blocks that fit into a cache.
static void blocks(int64_t n, const float* a, const float* b, float* c) { blocked(n, kBlock, a, b, c); }

// Rung 4. The engine's own: packed panels, a tile of C in registers (kernels/cpu/gemm.cpp).
static void register_tile(int64_t n, const float* a, const float* b, float* c) {
  const Ctx ctx = current().device.ctx();
  const MatmulShape square{.M = n, .N = n, .K = n, .lda = n, .ldb = n, .ldc = n};
  cpu::matmul(ctx, square, {a, DType::F32}, {b, DType::F32}, {c, DType::F32, Write::Set});
}

#ifdef GRADUS_ONEDNN
// Rung 5. oneDNN.
static void library(int64_t n, const float* a, const float* b, float* c) {
  dnnl_sgemm('N', 'N', n, n, n, 1, a, n, b, n, 0, c, n);
}
#endif

std::vector<Rung> rungs() {
  // Naive: an element of B is a line of 64 bytes for 2 FLOPs; of A, 4 bytes (neighbours use the rest of its
  // line). Reordered: per k, a row of B is read for 2n FLOPs: 4n bytes; C's row stays in cache. Blocked: a
  // block of B (4 kBlock^2 bytes) serves kBlock rows: 2 kBlock^3 FLOPs; and C's rows are read and written.
  // Register tile: B is packed and A passes once for each block of 1024 columns: n^2 · (4 + 4n/1024) bytes.
  return {
      {"1 naive", naive, [](int64_t) { return 2.0 / 68; }, false},
      {"2 loops reordered", reordered, [](int64_t) { return 2.0 / 4; }, false},
      {"3 blocked", blocks, [](int64_t) { return 2.0 * kBlock / 12; }, false},
      {"4 packed, tile in registers", register_tile,
       [](int64_t n) { return 2.0 * double(n) / (12 + 4 * double(n) / 1024); }, true},
#ifdef GRADUS_ONEDNN
      {"5 library (oneDNN)", library, [](int64_t n) { return 2.0 * double(n) / 12; }, true},
#endif
  };
}

}  // namespace gradus
