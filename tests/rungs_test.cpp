// Lesson 01's rungs: each gives the same product, at sizes that no block divides.
#include <gtest/gtest.h>

#include <cmath>

#include "lessons/01_gemm/rungs.h"
#include "src/core/rng.h"
#include "src/tensor/context.h"

namespace gradus {
namespace {

void expect_the_product(const Rung& rung) {
  Context context;
  for (const int64_t n : {1, 7, 129, 255}) {
    Rng rng(1, uint64_t(n));
    std::vector<float> a(n * n), b(n * n), c(n * n, NAN);
    for (float& x : a) x = float(rng.normal());
    for (float& x : b) x = float(rng.normal());
    rung.multiply(n, a.data(), b.data(), c.data());
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < n; ++k) {
          sum += double(a[i * n + k]) * b[k * n + j];
          size += std::abs(double(a[i * n + k]) * b[k * n + j]);
        }
        ASSERT_LE(std::abs(c[i * n + j] - sum), double(n) * 0x1p-24 * size)
            << rung.name << ", n = " << n << ", element (" << i << ", " << j << "): expected " << sum
            << ", got " << c[i * n + j] << "; c[i,j] = sum over k of a[i,k] b[k,j]";
      }
  }
}

// Alone: it is the first exercise, and the last rungs are later ones.
TEST(L01_Rungs, TheNaiveOneGivesTheProduct) {
  RecordProperty("exercise", "01.1");
  expect_the_product(rungs()[0]);
}

TEST(L01_Rungs, AllGiveTheSameProduct) {
  for (const Rung& rung : rungs()) expect_the_product(rung);
}

TEST(L01_Rungs,
     BlockedIntensityIsAThirdOfABlockOverTwo) {  // 2 block^3 operations for 12 block^2 bytes
  Context context;
  const double block = double(kBlock);
  EXPECT_DOUBLE_EQ(rungs()[2].intensity(1024), 2 * block * block * block / (12 * block * block));
  for (const Rung& rung : rungs())
    EXPECT_LE(rung.intensity(1024), 1024 / 6.0) << rung.name << ": above the bound n/6";
}

}  // namespace
}  // namespace gradus
