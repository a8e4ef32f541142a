#include "lessons/01_gemm/rungs.h"

#ifdef GRADUS_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

#include <algorithm>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "lessons/01_gemm/blocked.h"
#include "src/tensor/context.h"

namespace gradus {

// C1. One element of C at a time. The inner loop reads down a column of B: each step reads a different cache
// line and uses 4 of its 64 bytes.
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

// C2. The same sums with j innermost: the inner loop accesses B and C along rows, and the compiler vectorizes
// it.
static void reordered(int64_t n, const float* a, const float* b, float* c) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) {
    std::fill(c + i * n, c + (i + 1) * n, 0.0f);
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
  }
}

// C3. Blocks of B and C that fit into the cache.
static void blocks(int64_t n, const float* a, const float* b, float* c) { blocked(n, kBlock, a, b, c); }

// C4. A tile of kRows x kCols elements of C in registers: each number of A that is loaded is used kCols
// times, each number of B kRows times, and C is written once.
constexpr int64_t kRows = 4, kCols = 32;

// One tile. a, b and c point to the first elements of A, B and C that it uses.
static void tile(int64_t n, const float* a, const float* b, float* c) {
  // BEGIN SOLUTION 01.3
  float sum[kRows][kCols] = {};
  for (int64_t k = 0; k < n; ++k)
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kCols; ++j) sum[i][j] += a[i * n + k] * b[k * n + j];
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kCols; ++j) c[i * n + j] = sum[i][j];
  // STUB: todo("01.3", "sum a kRows x kCols tile of C over k, in a local array", n, a, b, c);
  // END SOLUTION 01.3
}

static void tiles(int64_t n, const float* a, const float* b, float* c) {
#pragma omp parallel for
  for (int64_t j0 = 0; j0 < n; j0 += kCols)  // kCols columns of B stay in the cache for all rows of A
    for (int64_t i0 = 0; i0 < n; i0 += kRows) {
      const int64_t i1 = std::min(i0 + kRows, n), j1 = std::min(j0 + kCols, n);
      if (i1 - i0 == kRows && j1 - j0 == kCols) {
        tile(n, a + i0 * n, b + j0, c + i0 * n + j0);
        continue;
      }
      for (int64_t i = i0; i < i1; ++i)  // incomplete tiles at the edges
        for (int64_t j = j0; j < j1; ++j) {
          c[i * n + j] = 0;
          for (int64_t k = 0; k < n; ++k) c[i * n + j] += a[i * n + k] * b[k * n + j];
        }
    }
}

// C5. The engine's own product (kernels/cpu/gemm.cpp): packed panels, a larger tile, vectors by hand.
static void engine_product(int64_t n, CBuf a, CBuf b, float* c) {
  const MatmulShape square{.M = n, .N = n, .K = n, .lda = n, .ldb = n, .ldc = n};
  cpu::matmul(current().device.ctx(), square, a, b, {c, DType::F32, Write::Set});
}
static void packed(int64_t n, const float* a, const float* b, float* c) {
  engine_product(n, {a, DType::F32}, {b, DType::F32}, c);
}
void pairs(int64_t n, const bf16* a, const bf16* b, float* c) {
  engine_product(n, {a, DType::BF16}, {b, DType::BF16}, c);
}

#ifdef GRADUS_ONEDNN
// C6. oneDNN.
static void library(int64_t n, const float* a, const float* b, float* c) {
  dnnl_sgemm('N', 'N', n, n, n, 1, a, n, b, n, 0, c, n);
}
#endif

std::vector<Rung> rungs() {
  // C1: per FMA (2 FLOPs) a cache line of B, 64 bytes, and 4 bytes of A. C2: per k, a row of B, 4n bytes, is
  // read for 2n FLOPs; the row of C stays in the cache. C3: a block of B (4 kBlock^2 bytes) is read for
  // kBlock rows of A, 2 kBlock^3 FLOPs, and a block of C is read and written. C4: A is read once per kCols
  // columns of B; B is read and C written once. C5: B is read, its packed copy and C are written, and A is
  // read once per t columns of B, which stay in L2: n^2 · (12 + 4n/t) bytes. C6: at best A and B are read, C
  // is written.
  return {
      {"C1 naive", naive, [](double) { return 2.0 / 68; }, false},
      {"C2 loops reordered", reordered, [](double) { return 2.0 / 4; }, false},
      {"C3 blocked", blocks, [](double) { return 2.0 * kBlock / 12; }, false},
      {"C4 register tile", tiles, [](double n) { return 2 * n / (8 + 4 * n / kCols); }, false},
      {"C5 packed, vectorized", packed,
       [](double n) { return 2 * n / (12 + 4 * n / double(cpu::gemm_columns(int64_t(n)))); }, true},
#ifdef GRADUS_ONEDNN
      {"C6 library (oneDNN)", library, [](double n) { return 2 * n / 12; }, true},
#endif
  };
}

}  // namespace gradus
