#include "lessons/01_gemm/rungs.h"

#ifdef GRADUS_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

#include <algorithm>

#include "kernels/cpu/cpu.h"
#include "lessons/01_gemm/blocked.h"
#include "src/tensor/context.h"

namespace gradus {

// C1. One element of C at a time. The inner loop walks down a column of B: each step touches another
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

// C2. The same sums with j innermost: B and C are walked along rows, and the compiler uses vectors.
static void reordered(int64_t n, const float* a, const float* b, float* c) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) {
    std::fill(c + i * n, c + (i + 1) * n, 0.0f);
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
  }
}

// C3. Blocks that fit into a cache.
static void blocks(int64_t n, const float* a, const float* b, float* c) { blocked(n, kBlock, a, b, c); }

// C4. A patch of kRows x kCols elements of C in registers: each number of A that is read is used kCols times,
// each of B kRows times, and C is written once.
constexpr int64_t kRows = 4, kCols = 32;

static void patch(int64_t n, const float* a, const float* b, float* c) {  // from their first elements on
  // BEGIN SOLUTION 01.8
  float sum[kRows][kCols] = {};
  for (int64_t k = 0; k < n; ++k)
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kCols; ++j) sum[i][j] += a[i * n + k] * b[k * n + j];
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kCols; ++j) c[i * n + j] = sum[i][j];
  // STUB: todo("01.8", "sum a kRows x kCols patch of C over k, in an array of its own", n, a, b, c);
  // END SOLUTION 01.8
}

static void patches(int64_t n, const float* a, const float* b, float* c) {
#pragma omp parallel for
  for (int64_t j0 = 0; j0 < n; j0 += kCols)  // kCols columns of B stay in the cache for all rows of A
    for (int64_t i0 = 0; i0 < n; i0 += kRows) {
      const int64_t i1 = std::min(i0 + kRows, n), j1 = std::min(j0 + kCols, n);
      if (i1 - i0 == kRows && j1 - j0 == kCols) {
        patch(n, a + i0 * n, b + j0, c + i0 * n + j0);
        continue;
      }
      for (int64_t i = i0; i < i1; ++i)  // at the edges
        for (int64_t j = j0; j < j1; ++j) {
          c[i * n + j] = 0;
          for (int64_t k = 0; k < n; ++k) c[i * n + j] += a[i * n + k] * b[k * n + j];
        }
    }
}

// C5. The engine's own: packed panels, a larger tile in registers, vectors by hand (kernels/cpu/gemm.cpp).
static void engines(int64_t n, CBuf a, CBuf b, float* c) {
  const MatmulShape square{.M = n, .N = n, .K = n, .lda = n, .ldb = n, .ldc = n};
  cpu::matmul(current().device.ctx(), square, a, b, {c, DType::F32, Write::Set});
}
static void packed(int64_t n, const float* a, const float* b, float* c) {
  engines(n, {a, DType::F32}, {b, DType::F32}, c);
}
void pairs(int64_t n, const bf16* a, const bf16* b, float* c) {
  engines(n, {a, DType::BF16}, {b, DType::BF16}, c);
}

#ifdef GRADUS_ONEDNN
// C6. oneDNN.
static void library(int64_t n, const float* a, const float* b, float* c) {
  dnnl_sgemm('N', 'N', n, n, n, 1, a, n, b, n, 0, c, n);
}
#endif

std::vector<Rung> rungs() {
  // C1: an element of B is a line of 64 bytes for 2 FLOPs; of A, 4 bytes (neighbours use the rest of its
  // line). C2: per k, a row of B is read for 2n FLOPs: 4n bytes; C's row stays in the cache. C3: a block of B
  // (4 kBlock^2 bytes) serves kBlock rows: 2 kBlock^3 FLOPs; and C's rows are read and written. C4: A passes
  // once for each kCols columns of B, which are read once. C5: B is packed and A passes once for each block
  // of 1024 columns, C is written: n^2 · (12 + 4n/1024) bytes. C6: at best, A and B in and C out.
  return {
      {"C1 naive", naive, [](double) { return 2.0 / 68; }, false},
      {"C2 loops reordered", reordered, [](double) { return 2.0 / 4; }, false},
      {"C3 blocked", blocks, [](double) { return 2.0 * kBlock / 12; }, false},
      {"C4 tile in registers", patches, [](double n) { return 2 * n / (8 + 4 * n / kCols); }, false},
      {"C5 packed, vectors", packed, [](double n) { return 2 * n / (12 + 4 * n / 1024); }, true},
#ifdef GRADUS_ONEDNN
      {"C6 library (oneDNN)", library, [](double n) { return 2 * n / 12; }, true},
#endif
  };
}

}  // namespace gradus
