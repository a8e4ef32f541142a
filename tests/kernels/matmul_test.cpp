// Matrix products against a plain fp64 loop: every mix of dtypes with Set and Add, transposes, long lines,
// batches within batches, sizes just below and above every block.
#include "tests/kernels/kernel_contract.h"
#include "tests/mistakes.h"
#include "tests/standin/turn.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L01_Matmul);
ON_STANDINS_TOO(L01_Matmul);

MatmulShape shape_of(int64_t M, int64_t N, int64_t K, Trans ta, Trans tb, int64_t gap = 0) {
  return {.M = M,
          .N = N,
          .K = K,
          .ta = ta,
          .tb = tb,
          .lda = (ta == Trans::Yes ? M : K) + gap,
          .ldb = (tb == Trans::Yes ? K : N) + 2 * gap,
          .ldc = N + 3 * gap};
}
int64_t extent(int64_t rows, int64_t ld, const MatmulShape& s, int64_t Batch::*stride) {
  return rows * ld + std::max<int64_t>(s.batch[0].count - 1, 0) * (s.batch[0].*stride) +
         std::max<int64_t>(s.batch[1].count - 1, 0) * (s.batch[1].*stride);
}

// One product of the batch; the loop takes B row by row, because some rows are long.
void multiply(const MatmulShape& s, const double* a, const double* b, int64_t c, Expected& want) {
  std::vector<double> sum(s.N), size(s.N);
  for (int64_t i = 0; i < s.M; ++i) {
    std::fill(sum.begin(), sum.end(), 0), std::fill(size.begin(), size.end(), 0);
    for (int64_t k = 0; k < s.K; ++k) {
      const double x = s.alpha * a[s.ta == Trans::Yes ? k * s.lda + i : i * s.lda + k];
      const double* const row = s.tb == Trans::Yes ? b + k : b + k * s.ldb;
      const int64_t step = s.tb == Trans::Yes ? s.ldb : 1;
      for (int64_t j = 0; j < s.N; ++j) sum[j] += x * row[j * step], size[j] += std::abs(x * row[j * step]);
    }
    for (int64_t j = 0; j < s.N; ++j) want.add(c + i * s.ldc + j, sum[j], double(s.K + 2) * size[j]);
  }
}

// A random operand with NaN between its rows, which the kernel must not read.
Buffer operand(DType t, const MatmulShape& s, int64_t rows, int64_t cols, int64_t ld, int64_t Batch::*stride,
               uint64_t stream) {
  const std::vector<double> all = Buffer::random(t, extent(rows, ld, s, stride), stream).values();
  std::vector<double> values(all.size(), NAN);
  for (int64_t o = 0; o < s.batch[0].count; ++o)
    for (int64_t n = 0; n < s.batch[1].count; ++n)
      for (int64_t i = 0; i < rows * cols; ++i) {
        const int64_t at = o * (s.batch[0].*stride) + n * (s.batch[1].*stride) + i / cols * ld + i % cols;
        values[at] = all[at];
      }
  return Buffer(t, values);
}

// C has the operands' dtype; if that has 16 bits, also fp32 (ways: as in all_ways).
std::vector<DType> types_of_c(DType t) { return size_of(t) == 2 ? t_or_fp32(t) : std::vector{t}; }
constexpr int kSet = 1, kAdd = 2, kSetFp32 = 3, kAddFp32 = 4;
void expect_product(TestCtx& ctx, const MatmulShape& s, DType t, const std::vector<Way>& ways,
                    const std::vector<int>& threads = {1, 3}) {
  const bool ta = s.ta == Trans::Yes, tb = s.tb == Trans::Yes;
  const Buffer a = operand(t, s, ta ? s.K : s.M, ta ? s.M : s.K, s.lda, &Batch::stride_a, 1),
               b = operand(t, s, tb ? s.N : s.K, tb ? s.K : s.N, s.ldb, &Batch::stride_b, 2);
  const std::vector<double> va = a.values(), vb = b.values();
  Expected want = Expected::sums("C", types_of_c(t), extent(s.M, s.ldc, s, &Batch::stride_c));
  for (int64_t o = 0; o < s.batch[0].count; ++o)
    for (int64_t n = 0; n < s.batch[1].count; ++n) {
      const auto at = [&](int64_t Batch::*stride) {
        return o * (s.batch[0].*stride) + n * (s.batch[1].*stride);
      };
      multiply(s, va.data() + at(&Batch::stride_a), vb.data() + at(&Batch::stride_b), at(&Batch::stride_c),
               want);
    }
  std::ostringstream text;
  text << "matmul M " << s.M << " N " << s.N << " K " << s.K << (ta ? " T" : " N") << (tb ? "T ld " : "N ld ")
       << s.lda << " " << s.ldb << " " << s.ldc << " alpha " << s.alpha << " batches " << s.batch[0].count
       << " x " << s.batch[1].count << " " << name_of(t) << " ->";
  const auto call = [&](const Ctx& c, const std::vector<Out>& out) {
    table().matmul(c, s, a.in(), b.in(), out[0]);
  };
  const TestedCall product{text.str(), {want}, call, {}, !on_cuda()};
  ASSERT_NO_FATAL_FAILURE(expect_contract(product, ways, ctx, threads));
}
void expect_product(TestCtx& ctx, const MatmulShape& s, DType t, int way,
                    const std::vector<int>& threads = {1, 3}) {
  expect_product(ctx, s, t, std::vector<Way>{{way}}, threads);
}

TEST_P(L01_Matmul, EveryTranspositionAndRaggedSize) {
  RecordProperty("exercise", "01.8");
  DirtyCtx ctx;
  for (const Trans ta : {Trans::No, Trans::Yes})
    for (const Trans tb : {Trans::No, Trans::Yes})
      for (const int64_t M : {1, 7, 13, 257})
        for (const int64_t N : {1, 31, 33, 255})
          for (const int64_t K : {0, 1, 7, 255})
            expect_product(ctx, shape_of(M, N, K, ta, tb), DType::F32, kSet);
  const Buffer ones(DType::F32, std::vector<double>(3 * 64, 1));
  Buffer out = Buffer::zeros(DType::F32, 64 * 64);
  table().matmul(ctx, shape_of(64, 64, 3, Trans::No, Trans::No), ones.in(), ones.in(), out.out(Write::Set));
  const std::vector<double> c = out.values();
  const auto [least, most] = std::minmax_element(c.begin(), c.end());
  EXPECT_EQ(*least, 3) << "C = A B, where A and B are ones, K = 3"
                       << usual_mistake({{*most == 2, "one step of K is missing"},
                                         {*least == 1, "some elements hold only the last product"},
                                         {*least == 0, "some rows or columns of the tile are left at 0"}});
}

TEST_P(L01_Matmul, EveryMixOfDtypesTransposesAndWritesWithLongLines) {
  DirtyCtx ctx;
  for (const DType t : float_types())
    for (const Trans ta : {Trans::No, Trans::Yes})
      for (const Trans tb : {Trans::No, Trans::Yes})
        for (const int64_t gap : {0, 3}) {
          MatmulShape s = shape_of(29, 35, 21, ta, tb, gap);
          s.alpha = gap == 0 ? 1 : -0.75f;
          expect_product(ctx, s, t, all_ways({{"C", types_of_c(t), {}}}));
        }
}

// A register tile has 6 or 12 rows and 8, 16 or 32 columns; four of them are a chunk; panels are packed 16
// deep, or 4 x 4; from 64^3 on threads share the work.
TEST_P(L01_Matmul, SizesOnBothSidesOfEveryTile) {
  DirtyCtx ctx;
  int i = 0;
  for (const int64_t M : {1, 6, 11, 12, 13, 47, 48, 49, 97})
    for (const int64_t N : {1, 7, 8, 16, 31, 32, 33, 65})
      for (const int64_t K : {1, 15, 16, 17, 68}) {
        ++i;
        const auto trans = [&](int bit) { return i >> bit & 1 ? Trans::Yes : Trans::No; };
        const DType t = float_types()[i / 4 % float_types().size()];
        const int way = 1 + i / 16 % (2 * int(types_of_c(t).size()));
        expect_product(ctx, shape_of(M, N, K, trans(0), trans(1), i % 3), t, way);
      }
}

// With AMX, a bf16 tile has 32 rows and columns and takes 32 numbers of K at a time; a chunk has 128 rows,
// and a pass 256 numbers of K.
TEST(L01_MatmulOnCpu, SizesOnBothSidesOfMatrixTiles) {
  DirtyCtx ctx;
  int i = 0;
  for (const int64_t M : {15, 16, 17, 31, 32, 33, 65, 127, 128, 129})
    for (const int64_t N : {15, 16, 17, 31, 32, 33, 65})
      for (const int64_t K : {1, 2, 31, 32, 33, 34, 63, 64, 65, 255, 256, 257}) {
        ++i;
        MatmulShape s =
            shape_of(M, N, K, i & 1 ? Trans::Yes : Trans::No, i & 2 ? Trans::Yes : Trans::No, i % 3);
        s.alpha = i % 5 == 0 ? -0.75f : 1;
        expect_product(ctx, s, DType::BF16, 1 + i / 4 % 4);
      }
}

TEST_P(L01_Matmul, NoProductsAreZeros) {
  DirtyCtx ctx;
  for (const DType t : float_types()) {
    MatmulShape s = shape_of(5, 6, 0, Trans::No, Trans::No);
    s.lda = 3;
    const Buffer a = Buffer::random(t, 15, 1), b = Buffer::random(t, 6, 2);
    const TestedCall zeros{
        "matmul K 0",
        {{"C", types_of_c(t), std::vector<double>(30)}},
        [&](const Ctx& c, const std::vector<Out>& out) { table().matmul(c, s, a.in(), b.in(), out[0]); }};
    expect_contract(zeros, all_ways(zeros.outputs), ctx);
  }
  for (const int way : {0, kSet, kAdd}) {
    expect_product(ctx, shape_of(0, 6, 5, Trans::No, Trans::Yes), DType::F32, way);
    expect_product(ctx, shape_of(6, 0, 5, Trans::Yes, Trans::No), DType::F32, way);
    for (const int empty : {0, 1}) {
      MatmulShape s = shape_of(2, 3, 4, Trans::No, Trans::No);
      s.batch[empty].count = 0;
      expect_product(ctx, s, DType::F32, way);
    }
  }
}

// With strides of 0 all of a batch have the same matrix; the inner dimension may have the longer stride;
// matrices may have gaps between them, or lie next to each other in one line, as heads do.
TEST_P(L01_Matmul, BatchesWithinBatches) {
  DirtyCtx ctx;
  int i = 0;
  for (const auto& [outer, inner] : {std::pair(1, 1), {1, 3}, {3, 1}, {2, 2}, {3, 5}, {7, 3}})
    for (const int broadcast : {0, 1, 2, 3})  // bit 0: a, bit 1: b, over the outer; both over the inner, too
      for (const bool heads : {false, true}) {
        MatmulShape s = shape_of(5, 7, 6, Trans::No, i % 2 ? Trans::Yes : Trans::No);
        if (heads) s.lda = 6 * inner, s.ldb = (i % 2 ? 6 : 7) * inner, s.ldc = 7 * inner;
        const int64_t a = heads ? 6 : 40, b = heads ? (i % 2 ? 6 : 7) : 50, c = heads ? 7 : 36;
        s.batch[1] = {inner, i % 3 == 0 ? 0 : a, i % 5 == 0 ? 0 : b, c};
        s.batch[0] = {outer, broadcast & 1 ? 0 : 60 * inner, broadcast & 2 ? 0 : 64 * inner, 55 * inner};
        if (i % 4 == 3 && !heads) std::swap(s.batch[0], s.batch[1]);
        s.alpha = 0.5f + float(i % 2);
        for (const DType t : float_types()) expect_product(ctx, s, t, all_ways({{"C", types_of_c(t), {}}}));
        ++i;
      }
}

// Blocks of K are at most 1024 deep (2048 with bf16 pairs), blocks of N at most 1024 wide; C or the workspace
// keeps the sums of earlier blocks.
TEST(L01_MatmulOnCpu, SumsOfSeveralBlocks) {
  DirtyCtx ctx;
  const std::vector<Way> both{{kSet}, {kAdd}};
  for (const int64_t K : {1024, 1025, 2047, 2048, 2049, 4100}) {
    expect_product(ctx, shape_of(25, 70, K, Trans::No, Trans::Yes), DType::F32, both);
    expect_product(ctx, shape_of(14, 33, K, Trans::Yes, Trans::No, 1), DType::BF16, kAddFp32);
    expect_product(ctx, shape_of(14, 17, K, Trans::No, Trans::No, 1), DType::F16, kSet);
    expect_product(ctx, shape_of(14, 17, K, Trans::No, Trans::No, 1), DType::F64, both);
  }
  for (const int64_t K : {4095, 4096, 4097, 8193})
    expect_product(ctx, shape_of(14, 33, K, Trans::No, Trans::Yes, 1), DType::BF16, {{kSetFp32}, {kAdd}});
  for (const int64_t N : {1023, 1024, 1025, 2050})
    expect_product(ctx, shape_of(13, N, 33, Trans::No, Trans::Yes), DType::F32, kAdd);
  expect_product(ctx, shape_of(1010, 40, 2060, Trans::No, Trans::No), DType::F32, kSet);
  expect_product(ctx, shape_of(13, 1030, 2060, Trans::No, Trans::No), DType::F32, kAdd);
}

// Each of many products at once has a share of the workspace, and so smaller blocks: rows and columns of one
// product are then divided, too. All compute the same product, of one A and one B.
TEST(L01_MatmulOnCpu, ManyProductsShareTheWorkspace) {
  DirtyCtx ctx;
  for (const int n : {3, 8, 20}) {
    MatmulShape s = shape_of(5, 9, 2100, Trans::No, Trans::Yes);
    s.batch[1] = {41, 0, 3, 45};
    MatmulShape large = shape_of(1030, 140, 2060, Trans::No, Trans::Yes);
    const Buffer a = Buffer::random(DType::F32, 1030 * 2060, 1),
                 b = Buffer::random(DType::F32, 140 * 2060, 2);
    Buffer one = Buffer::zeros(DType::F32, 1030 * 140);
    if (n == 3) expect_product(ctx, large, DType::F32, kAdd);
    expect_product(ctx, s, DType::F32, kAdd, {n});
    const OpenMpThreads as_many(n);
    table().matmul(ctx, large, a.in(), b.in(), one.out(Write::Set));
    large.batch[0] = {n == 8 ? 17 : 1, 0, 0, 1030 * 140};
    Buffer all = Buffer::zeros(DType::F32, large.batch[0].count * 1030 * 140);
    table().matmul(ctx, large, a.in(), b.in(), all.out(Write::Set));
    const std::vector<double> want = one.values(), got = all.values();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i % want.size()]) << "element " << i;
  }
}

// More rows and columns than the workspace has partial sums for, in several blocks of K: the last rows are
// bitwise equal to the same rows computed alone.
TEST(L01_MatmulOnCpu, PartialSumsHaveRoomForAllRows) {
  for (const DType t : {DType::F32, DType::BF16}) {
    const int64_t M = 1030, N = 1030, K = 4100, few = 30;
    const Buffer a = Buffer::random(t, M * K, 1), b = Buffer::random(t, N * K, 2);
    Buffer all = Buffer::zeros(DType::F32, M * N), last = Buffer::zeros(DType::F32, few * N);
    TestCtx ctx;
    table().matmul(ctx, shape_of(M, N, K, Trans::No, Trans::Yes), a.in(), b.in(), all.out(Write::Set));
    table().matmul(ctx, shape_of(few, N, K, Trans::No, Trans::Yes), a.in().from((M - few) * K), b.in(),
                   last.out(Write::Set));
    const std::vector<double> want = last.values(), got = all.values();
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(got[size_t((M - few) * N) + i], want[i]) << name_of(t) << ", element " << i;
  }
}

// Infinity and NaN reach C, and 0 times infinity is NaN. An odd K, where bf16 pairs are filled up with 0,
// does not turn infinity into NaN.
TEST_P(L01_Matmul, WhatIsNotFiniteArrives) {
  for (const DType t : float_types())
    for (const int64_t K : {1, 2, 3, 5, 17}) {
      std::vector<double> rows(size_t(3 * K), 1.0);  // they end with infinity, with 0 and with NaN
      rows[size_t(K - 1)] = INFINITY, rows[size_t(3 * K - 1)] = NAN;
      std::fill_n(rows.begin() + K, K, 0.0);
      std::vector<double> infinite(size_t(K), 1.0);
      infinite.back() = INFINITY;
      const Buffer a(t, rows), ones(t, std::vector<double>(size_t(K), 1.0)), b(t, infinite);
      TestCtx ctx;
      const auto times = [&](const Buffer& column) {
        Buffer c = Buffer::zeros(t, 3);
        table().matmul(ctx, shape_of(3, 1, K, Trans::No, Trans::No), a.in(), column.in(), c.out(Write::Set));
        return c.values();
      };
      const std::vector<double> by_ones = times(ones), by_infinity = times(b);
      EXPECT_EQ(by_ones[0], INFINITY) << name_of(t) << ", K " << K;
      EXPECT_EQ(by_ones[1], 0) << name_of(t) << ", K " << K;
      EXPECT_EQ(by_infinity[0], INFINITY) << name_of(t) << ", K " << K;
      EXPECT_TRUE(std::isnan(by_infinity[1])) << name_of(t) << ", K " << K;
      EXPECT_TRUE(std::isnan(by_ones[2]) && std::isnan(by_infinity[2])) << name_of(t) << ", K " << K;
    }
}

}  // namespace
}  // namespace gradus
