// The CPU's product by its own header: what it reads in place, what it copies, and how much stays in the
// cache.
#include "kernels/cpu/gemm.h"

#include "kernels/cpu/gemm_tile.h"
#include "tests/kernels/kernel_contract.h"

namespace gradus {
namespace {

// Matrices whose rows are far apart are copied before they are multiplied, others are not: the results are
// bitwise equal. Also of incomplete tiles, several blocks of K, and one thread or several.
TEST(L01_Gemm, CopiesChangeNothing) {
  const int64_t M = 40, N = 70, K = 1100, far = 8192;  // K rows of it: 36 MB
  TestCtx ctx;
  for (const DType t : {DType::F32, DType::F64})
    for (const Trans ta : {Trans::No, Trans::Yes}) {
      const Buffer a = Buffer::random(t, M * K, 1), b = Buffer::random(t, K * N, 2);
      const auto apart = [&](const Buffer& x, int64_t rows, int64_t cols) {
        const std::vector<double> from = x.values();
        std::vector<double> to(size_t(rows * far));
        for (int64_t i = 0; i < rows * cols; ++i) to[size_t(i / cols * far + i % cols)] = from[size_t(i)];
        return Buffer(t, to);
      };
      const int64_t a_rows = ta == Trans::Yes ? K : M, a_cols = M * K / a_rows;
      const Buffer far_a = apart(a, a_rows, a_cols), far_b = apart(b, K, N);
      const MatmulShape near{.M = M, .N = N, .K = K, .ta = ta, .lda = a_cols, .ldb = N, .ldc = N};
      Buffer want = Buffer::random(t, M * N, 3);
      const Buffer before = want;
      table().matmul(ctx, near, a.in(), b.in(), want.out(Write::Add));
      for (const int threads : {1, 3, 4})
        for (const bool a_far : {true, false}) {
          const OpenMpThreads as_many(threads);
          MatmulShape s = near;
          (a_far ? s.lda : s.ldb) = far;
          Buffer got = before;
          table().matmul(ctx, s, a_far ? far_a.in() : a.in(), a_far ? b.in() : far_b.in(),
                         got.out(Write::Add));
          EXPECT_EQ(got.values(), want.values()) << name_of(t) << (a_far ? " A" : " B") << " is far";
        }
    }
}

// gemm_columns: whole tiles that fit into half of the cache, but at least one tile.
TEST(L01_Gemm, ColumnsThatStayInTheCache) {
  constexpr int64_t kTile = cpu::Tile<float>::kCols;
  int64_t before = 1024;
  for (const int64_t K : {0, 1, 100, 1024, 1025, 50257}) {
    const int64_t columns = cpu::gemm_columns(K), depth = std::clamp<int64_t>(K, 1, 1024);
    EXPECT_TRUE(columns % kTile == 0 && columns >= kTile && columns <= 1024) << columns;
    EXPECT_LE(columns, K <= 1024 ? before : 1024) << "of a deeper block, fewer stay";
    EXPECT_TRUE(columns == kTile || columns * depth * 4 <= int64_t(64) << 20) << "no L2 cache is as large";
    before = columns;
  }
}

}  // namespace
}  // namespace gradus
