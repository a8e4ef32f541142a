// Matrix products against a plain fp64 loop: every transposition, dtype, ragged sizes, strides, batches, Set
// and Add.
#include <omp.h>

#include "tests/standin/turn.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L01_Matmul);
ON_STANDINS_TOO(L01_Matmul);

struct Case {
  MatmulShape shape;
  DType t, tc;
  std::string text() const {
    std::ostringstream out;
    out << "matmul M " << shape.M << " N " << shape.N << " K " << shape.K
        << (shape.ta == Trans::Yes ? " T" : " N") << (shape.tb == Trans::Yes ? "T " : "N ") << name_of(t)
        << " -> " << name_of(tc);
    return out.str();
  }
};

MatmulShape shape_of(int64_t M, int64_t N, int64_t K, Trans ta, Trans tb, int64_t pad = 0) {
  return {.M = M,
          .N = N,
          .K = K,
          .ta = ta,
          .tb = tb,
          .lda = (ta == Trans::Yes ? M : K) + pad,
          .ldb = (tb == Trans::Yes ? K : N) + pad,
          .ldc = N + pad};
}

// Sums and sums of absolute values, for the bound |error| <= (K + 2) eps32 sum |a b| + eps_out |c|.
void reference(const MatmulShape& s, const std::vector<double>& a, const std::vector<double>& b,
               std::vector<double>& c, std::vector<double>& size) {
  for (int64_t o = 0; o < s.batch[0].count; ++o)
    for (int64_t n = 0; n < s.batch[1].count; ++n)
      for (int64_t i = 0; i < s.M; ++i)
        for (int64_t j = 0; j < s.N; ++j) {
          double sum = 0, absolute = 0;
          for (int64_t k = 0; k < s.K; ++k) {
            const int64_t ai = o * s.batch[0].stride_a + n * s.batch[1].stride_a +
                               (s.ta == Trans::Yes ? k * s.lda + i : i * s.lda + k);
            const int64_t bi = o * s.batch[0].stride_b + n * s.batch[1].stride_b +
                               (s.tb == Trans::Yes ? j * s.ldb + k : k * s.ldb + j);
            sum += a[ai] * b[bi];
            absolute += std::abs(a[ai] * b[bi]);
          }
          const int64_t at = o * s.batch[0].stride_c + n * s.batch[1].stride_c + i * s.ldc + j;
          c[at] = s.alpha * sum;
          size[at] = std::abs(s.alpha) * absolute;
        }
}

int64_t extent(int64_t rows, int64_t ld, const MatmulShape& s, int64_t Batch::*stride) {
  return rows * ld + (s.batch[0].count - 1) * (s.batch[0].*stride) +
         (s.batch[1].count - 1) * (s.batch[1].*stride);
}

void expect_product(const Case& x) {
  const MatmulShape& s = x.shape;
  const Buffer a = Buffer::random(x.t, extent(s.ta == Trans::Yes ? s.K : s.M, s.lda, s, &Batch::stride_a), 1);
  const Buffer b = Buffer::random(x.t, extent(s.tb == Trans::Yes ? s.N : s.K, s.ldb, s, &Batch::stride_b), 2);
  Buffer c = Buffer::random(x.tc, extent(s.M, s.ldc, s, &Batch::stride_c), 3);
  std::vector<double> expected = c.values(), size(expected.size(), 0.0);  // what is not written stays
  reference(s, a.values(), b.values(), expected, size);
  TestCtx ctx;
  table().matmul(ctx, s, a.in(), b.in(), c.out(Write::Set));
  const double eps = epsilon_of(x.t == DType::F64 ? DType::F64 : DType::F32);
  expect_close(x.text(), c.values(), expected, [&](int64_t i) {
    return size[i] == 0 ? 0
                        : double(s.K + 2) * eps * size[i] + epsilon_of(x.tc) * std::abs(expected[i]) +
                              1e-7 * (x.tc == DType::F16);
  });
}

TEST_P(L01_Matmul, EveryTranspositionAndRaggedSize) {
  RecordProperty("exercise", "01.2");
  for (const Trans ta : {Trans::No, Trans::Yes})
    for (const Trans tb : {Trans::No, Trans::Yes})
      for (const int64_t M : {1, 7, 13, 257})
        for (const int64_t N : {1, 31, 33, 255})
          for (const int64_t K : {0, 1, 7, 255})
            expect_product({shape_of(M, N, K, ta, tb), DType::F32, DType::F32});
}

TEST_P(L01_Matmul, EveryDtype) {
  for (const DType t : float_types())
    for (const Trans tb : {Trans::No, Trans::Yes}) {
      expect_product({shape_of(37, 45, 67, Trans::No, tb), t, t});
      if (size_of(t) == 2) expect_product({shape_of(37, 45, 67, Trans::Yes, tb), t, DType::F32});
    }
}

TEST_P(L01_Matmul, RowsLongerThanTheMatrixAreLeftAlone) {
  expect_product({shape_of(13, 17, 19, Trans::No, Trans::Yes, 5), DType::F32, DType::F32});
  expect_product({shape_of(13, 17, 19, Trans::Yes, Trans::No, 3), DType::BF16, DType::BF16});
}

TEST_P(L01_Matmul, LongSumsAreCutIntoBlocks) {  // K beyond a block, M and N beyond a block of the buffers
  expect_product({shape_of(60, 70, 5000, Trans::No, Trans::Yes), DType::F32, DType::F32});
  expect_product({shape_of(1100, 40, 2100, Trans::No, Trans::No), DType::F32, DType::F32});
  expect_product({shape_of(9, 1100, 2100, Trans::Yes, Trans::No), DType::BF16, DType::BF16});
}

TEST_P(L01_Matmul, TwoBatchDimensionsWithTheirStrides) {
  for (const int64_t inner : {2, 9}) {
    MatmulShape s = shape_of(5, 7, 11, Trans::No, Trans::Yes);
    s.batch[0] = {3, inner * 60, inner * 80, inner * 40};
    s.batch[1] = {inner, 60, 80, 40};
    s.alpha = -0.5f;
    for (const DType t : float_types()) expect_product({s, t, t});
  }
}

TEST_P(L01_Matmul, AddIsTheOldValuePlusTheFinishedProduct) {
  if (on_cuda())
    GTEST_SKIP() << "cuBLAS promises no such bits; AddIsWithinTheRoundingOfTheSum stands for this";
  for (const DType t : float_types())  // expect_add_is_set_plus takes fp32 and fp64
    for (const int64_t K : {1, 67, 2100, 4500}) {
      const MatmulShape s = shape_of(37, 41, K, Trans::No, Trans::Yes);
      const Buffer a = Buffer::random(t, 37 * K, 1), b = Buffer::random(t, 41 * K, 2);
      TestCtx ctx;
      expect_add_is_set_plus("matmul", t, 37 * 41, [&](Out c) { table().matmul(ctx, s, a.in(), b.in(), c); });
    }
}

TEST_P(L01_Matmul, AddInSixteenBitsRoundsOnce) {
  if (on_cuda())
    GTEST_SKIP() << "cuBLAS promises no such bits; AddIsWithinTheRoundingOfTheSum stands for this";
  const MatmulShape s = shape_of(9, 33, 300, Trans::No, Trans::No);
  const Buffer a = Buffer::random(DType::BF16, 9 * 300, 1), b = Buffer::random(DType::BF16, 33 * 300, 2);
  Buffer finished = Buffer::zeros(DType::F32, 9 * 33), c = Buffer::random(DType::BF16, 9 * 33, 3, 30);
  const std::vector<double> old = c.values();
  TestCtx ctx;
  table().matmul(ctx, s, a.in(), b.in(), finished.out(Write::Set));
  table().matmul(ctx, s, a.in(), b.in(), c.out(Write::Add));
  const std::vector<double> r = finished.values(), got = c.values();
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], double(bf16(float(old[i]) + float(r[i])))) << "element " << i;
}

// What holds on every device: the sum in fp32 within its own rounding, the old value added in fp32, and one
// rounding to C's type.
TEST_P(L01_Matmul, AddIsWithinTheRoundingOfTheSum) {
  for (const DType t : float_types())
    for (const int64_t K : {1, 300, 4500}) {
      MatmulShape s = shape_of(9, 33, K, Trans::No, Trans::Yes);
      s.alpha = 0.75f;
      const Buffer a = Buffer::random(t, 9 * K, 1), b = Buffer::random(t, 33 * K, 2);
      Buffer c = Buffer::random(t, 9 * 33, 3, 30);
      const std::vector<double> old = c.values();
      std::vector<double> expected(old.size()), size(old.size());
      reference(s, a.values(), b.values(), expected, size);
      for (size_t i = 0; i < old.size(); ++i) expected[i] += old[i];
      TestCtx ctx;
      table().matmul(ctx, s, a.in(), b.in(), c.out(Write::Add));
      const double eps = epsilon_of(t == DType::F64 ? DType::F64 : DType::F32);
      expect_close(std::string("matmul, Add, ") + name_of(t), c.values(), expected, [&](int64_t i) {
        return double(K + 2) * eps * size[i] +
               (epsilon_of(t) + eps) * (std::abs(expected[i]) + eps * size[i]);
      });
    }
}

std::vector<double> product_bits(const MatmulShape& s) {
  const Buffer a = Buffer::random(DType::F32, s.M * s.K, 1), b = Buffer::random(DType::F32, s.N * s.K, 2);
  Buffer c = Buffer::zeros(DType::F32, s.M * s.N);
  TestCtx ctx;
  table().matmul(ctx, s, a.in(), b.in(), c.out(Write::Set));
  return c.values();
}

TEST(L01_MatmulOnCpu, TheResultDoesNotDependOnTheNumberOfThreads) {
  const MatmulShape s = shape_of(257, 255, 2300, Trans::No, Trans::Yes);
  const int threads = omp_get_max_threads();
  const std::vector<double> expected = product_bits(s);
  for (const int n : {1, 2, 3, 7}) {
    omp_set_num_threads(n);
    EXPECT_EQ(product_bits(s), expected) << n << " threads";
  }
  omp_set_num_threads(threads);
}

TEST(L01_MatmulOnCpu, ARowDoesNotDependOnTheOthers) {
  const std::vector<double> many = product_bits(shape_of(100, 33, 700, Trans::No, Trans::Yes));
  const std::vector<double> few = product_bits(shape_of(3, 33, 700, Trans::No, Trans::Yes));
  for (size_t i = 0; i < few.size(); ++i) ASSERT_EQ(few[i], many[i]) << "element " << i;
}

// More rows and columns than the workspace has partial sums for, in several blocks of K: the last rows are
// those that they are by themselves.
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

// 0 times infinity is not a number; and an odd K, which bf16's pairs must fill up, makes none of infinity.
TEST_P(L01_Matmul, ZeroTimesWhatIsNotFinite) {
  for (const DType t : float_types())
    for (const int64_t K : {1, 2, 3, 5, 17}) {
      std::vector<double> rows(size_t(2 * K), 1.0);  // the first ends with infinity, the second is 0
      rows[size_t(K - 1)] = INFINITY;
      std::fill_n(rows.begin() + K, K, 0.0);
      const Buffer a(t, rows), ones(t, std::vector<double>(size_t(K), 1.0));
      std::vector<double> infinite(size_t(K), 1.0);
      infinite.back() = INFINITY;
      const Buffer b(t, infinite);
      Buffer c = Buffer::zeros(t, 2);
      TestCtx ctx;
      table().matmul(ctx, shape_of(2, 1, K, Trans::No, Trans::No), a.in(), ones.in(), c.out(Write::Set));
      EXPECT_EQ(c.values(), (std::vector<double>{INFINITY, 0})) << name_of(t) << ", K " << K;
      table().matmul(ctx, shape_of(2, 1, K, Trans::No, Trans::No), a.in(), b.in(), c.out(Write::Set));
      EXPECT_EQ(c.values()[0], INFINITY) << name_of(t) << ", K " << K;
      EXPECT_TRUE(std::isnan(c.values()[1])) << name_of(t) << ", K " << K;
    }
}

TEST_P(L01_Matmul, NanAndInfinityArrive) {
  Buffer a(DType::F32, {1, NAN, 1, 1}), b(DType::F32, {1, 0, INFINITY, 1}), c = Buffer::zeros(DType::F32, 4);
  TestCtx ctx;
  table().matmul(ctx, shape_of(2, 2, 2, Trans::No, Trans::No), a.in(), b.in(), c.out(Write::Set));
  EXPECT_TRUE(std::isnan(c.values()[0]) && std::isnan(c.values()[1]));
  EXPECT_TRUE(std::isinf(c.values()[2]));
}

TEST_P(L01_Matmul, MixedDtypesAreRefused) {
  Buffer a = Buffer::zeros(DType::F32, 4), b = Buffer::zeros(DType::BF16, 4);
  TestCtx ctx;
  const MatmulShape s = shape_of(2, 2, 2, Trans::No, Trans::No);
  EXPECT_THROW(table().matmul(ctx, s, a.in(), b.in(), a.out(Write::Set)), Error);
  EXPECT_THROW(table().matmul(ctx, s, a.in(), a.in(), b.out(Write::Set)), Error);
}

}  // namespace
}  // namespace gradus
