// Lesson 01's CPU rungs: each gives the correct product, also at sizes that no block divides. Also tests the
// lesson's own checks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/cpu/gemm.h"
#include "lessons/01_gemm/cpu_ladder.h"
#include "lessons/01_gemm/rungs.h"
#include "src/core/rng.h"
#include "src/tensor/context.h"
#include "tests/lessons/report_testing.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

float in_fp32(double x) { return float(x); }
float in_bf16(double x) { return bf16(float(x)); }

void expect_the_product(const Rung& rung, float (*rounded)(double) = in_fp32) {
  Context context;
  for (const int64_t n : {1, 7, 129, 255}) {
    Rng rng(1, uint64_t(n));
    std::vector<float> a(n * n), b(n * n), c(n * n, NAN);
    for (float& x : a) x = rounded(rng.normal());
    for (float& x : b) x = rounded(rng.normal());
    rung.multiply(n, a.data(), b.data(), c.data());
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < n; ++k) {
          sum += double(a[i * n + k]) * b[k * n + j];
          size += std::abs(double(a[i * n + k]) * b[k * n + j]);
        }
        const double last = double(a[i * n + n - 1]) * b[(n - 1) * n + j];
        const auto with_rows_of_b = [&] {
          double wrong = 0;
          for (int64_t k = 0; k < n; ++k) wrong += double(a[i * n + k]) * b[j * n + k];
          return wrong;
        };
        const auto is = [&](double x) { return std::abs(c[i * n + j] - x) <= double(n) * 0x1p-24 * size; };
        ASSERT_LE(std::abs(c[i * n + j] - sum), double(n) * 0x1p-24 * size)
            << rung.name << ", n = " << n << ", element (" << i << ", " << j << "): expected " << sum
            << ", got " << c[i * n + j] << "; c[i,j] = sum over k of a[i,k] b[k,j]"
            << usual_mistake({{is(with_rows_of_b()), "your loop reads a row of B instead of a column"},
                              {is(last), "c is the last product alone; nothing is summed"},
                              {is(sum - last), "the last product of the sum is missing"}});
      }
  }
}

// Tests C1 alone, because C4 and C5 are later exercises.
TEST(L01_Rungs, TheNaiveRungGivesTheProduct) {
  RecordProperty("exercise", "01.1");
  expect_the_product(rungs()[0]);
}

TEST(L01_Rungs, TheRegisterTileGivesTheProduct) {
  RecordProperty("exercise", "01.3");
  expect_the_product(rungs()[3]);
}

TEST(L01_Rungs, AllGiveTheSameProduct) {
  for (const Rung& rung : rungs()) expect_the_product(rung);
}

// The inputs are exact in bf16, so only sums are rounded. With odd sizes the last pair holds one number.
TEST(L01_Rungs, PairsGiveTheProduct) {
  const auto multiply = [](int64_t n, const float* a, const float* b, float* c) {
    pairs(n, std::vector<bf16>(a, a + n * n).data(), std::vector<bf16>(b, b + n * n).data(), c);
  };
  expect_the_product({"pairs", multiply, nullptr, true}, in_bf16);
}

TEST(L01_Rungs,
     BlockedIntensityIsASixthOfTheBlock) {  // 2 block^3 FLOPs per 12 block^2 bytes
  Context context;
  const double block = double(kBlock);
  EXPECT_DOUBLE_EQ(rungs()[2].intensity(1024), 2 * block * block * block / (12 * block * block));
  for (const Rung& rung : rungs())
    EXPECT_LE(rung.intensity(1024), 1024 / 6.0) << rung.name << ": above the bound n/6";
}

TEST(L01_Rungs, IntensitiesAreThoseOfThePage) {
  Context context;
  const std::vector<Rung> list = rungs();
  EXPECT_DOUBLE_EQ(list[0].intensity(1024), 2 / 68.0);
  EXPECT_DOUBLE_EQ(list[1].intensity(1024), 2 / 4.0);
  EXPECT_DOUBLE_EQ(list[3].intensity(1024), 2048 / 136.0);  // A is read 32 times
  for (const double n : {1024, 2048}) {
    const double times = n / double(cpu::gemm_columns(int64_t(n)));  // that A is read
    EXPECT_DOUBLE_EQ(list[4].intensity(n), 2 * n / (12 + 4 * times));
  }
}

// worst_error divides the largest error by the allowed error: below 1 for a correct product, 8 for an error
// of 8 times the allowed one.
TEST(L01_Problem, ErrorsAreDividedByTheAllowedError) {
  const int64_t n = 33;
  const Problem problem(n, 1);
  std::vector<float> c(n * n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += double(problem.a[i * n + k]) * problem.b[k * n + j];
      c[i * n + j] = float(sum);
    }
  EXPECT_LE(problem.worst_error(c), 1);
  for (const int64_t column : {int64_t(0), n / 2, n - 1}) {
    std::vector<float> wrong = c;
    wrong[7 * n + column] += float(8 * double(n) * 0x1p-24);
    EXPECT_NEAR(problem.worst_error(wrong), 8, 1) << "column " << column;
    wrong = c;
    wrong[3 * n + column] = NAN;
    EXPECT_FALSE(problem.worst_error(wrong) <= 1) << "a NaN passes, column " << column;
  }
}

// Six sizes of C1 to C6, and of C7.
TEST(L01_Checks, OfTimeDifferWhereARungIsTooSlow) {
  const auto failed = [](size_t rung, size_t size, double gflops) {
    std::vector<std::vector<double>> all{{NAN, 1, 1, 1, NAN, NAN}};
    for (const double x : {20, 20, 20, 20, 25, 40}) all.emplace_back(6, x);
    all[rung][size] = gflops;
    const std::vector<double> c7 = all.back();
    all.pop_back();
    return failed_checks([&](Report& r) { check_throughput(all, c7, r); });
  };
  EXPECT_EQ(failed(4, 0, 1), Names{}) << "n = 256 is not compared";
  EXPECT_EQ(failed(0, 3, 2.1), Names{"throughput C5 / C1, n = 1024"});
  EXPECT_EQ(failed(5, 1, 27), Names{"throughput C5 / C6, smallest ratio at n >= 1000"});
  EXPECT_EQ(failed(6, 5, 29), Names{"throughput C7 / C5, smallest ratio at n >= 1000"});
  const auto on_gpu = [](double g3) {
    return failed_checks([&](Report& r) { check_gpu_throughput(1024, {1, 1, g3, 9}, r); });
  };
  EXPECT_EQ(on_gpu(2), Names{});
  EXPECT_EQ(on_gpu(1.9), Names{"throughput G3 / G1 on cuda, n = 1024"});
}

// The lesson's checks fail for a wrong product and for wrong traffic, and the name of the failed check says
// which.
TEST(L01_Checks, FailWhereAProductOrItsTrafficIsWrong) {
  const auto of_errors = [](const std::vector<double>& errors) {
    return failed_checks([&](Report& r) { check_errors("C1", errors, r); });
  };
  EXPECT_EQ(of_errors({0.2, 1, 0.3}), Names{});
  EXPECT_EQ(of_errors({}), Names{"C1: largest error / allowed error"});
  for (const double wrong : {1.01, double(INFINITY), double(NAN)})
    for (const size_t at : {0, 1, 2}) {
      std::vector<double> errors{0.2, 0.9, 0.3};
      errors[at] = wrong;
      EXPECT_EQ(of_errors(errors), Names{"C1: largest error / allowed error"}) << wrong << " at " << at;
    }
  const emu::Traffic right{{10, 40}, {2, 8}, 7};
  const auto of_traffic = [&](const emu::Traffic& counted) {
    return failed_checks([&](Report& r) { check_traffic("G1", counted, right, r); });
  };
  EXPECT_EQ(of_traffic(right), Names{});
  EXPECT_EQ(of_traffic({{10, 41}, {2, 8}, 7}), Names{"G1: bytes of global-memory traffic"});
  EXPECT_EQ(of_traffic({{10, 40}, {2, 7}, 7}), Names{"G1: bytes of global-memory traffic"});
  EXPECT_EQ(of_traffic({{11, 40}, {2, 8}, 7}), Names{"G1: warp loads from global memory"});
  EXPECT_EQ(of_traffic({{10, 40}, {2, 8}, 0}), Names{"G1: thread loads from shared memory"});
}

TEST(L01_Problem, NumbersAreBetweenMinusOneAndOneAndOfTheirSeed) {
  const Problem one(100, 1), again(100, 1), other(100, 2);
  for (const std::vector<float>* numbers : {&one.a, &one.b}) {
    double sum = 0;
    for (const float x : *numbers) sum += x;
    EXPECT_NEAR(sum / 1e4, 0, 0.03) << "five deviations of the mean";
    const auto [low, high] = std::minmax_element(numbers->begin(), numbers->end());
    EXPECT_TRUE(*low >= -1 && *low < -0.99 && *high > 0.99 && *high <= 1) << *low << " to " << *high;
  }
  EXPECT_EQ(one.a, again.a);
  EXPECT_EQ(one.b, again.b);
  EXPECT_NE(one.a, one.b);
  EXPECT_NE(one.a, other.a);
  EXPECT_NE(one.b, other.b);
  EXPECT_DOUBLE_EQ(one.gflop(), 2e-3);
}

}  // namespace
}  // namespace gradus
