// Exercise 01.9: is_a_product must accept right products, whatever their order of summation, and refuse the
// wrong ones below. Each is wrong in one way only.
#include <gtest/gtest.h>

#include <algorithm>

#include "lessons/01_gemm/my_test.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

// C = A B, with one mistake; `mistake` 0: none.
enum Mistake { None, LastOfTheSum, NotZeroed, BTransposed, OneColumn, LastRowOfOdd, BeyondABlock, LeftOut };

template <Mistake mistake>
void product(int64_t n, const float* a, const float* b, float* c) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = mistake == NotZeroed ? c[i * n + j] : 0;
      const int64_t last = mistake == LastOfTheSum ? std::max<int64_t>(n - 1, 1) : n;
      for (int64_t k = 0; k < last; ++k)
        sum += a[i * n + k] * (mistake == BTransposed ? b[j * n + k] : b[k * n + j]);
      if (mistake == OneColumn && n > 4 && j == 2) sum += 0.01f;
      if (mistake == LastRowOfOdd && n % 2 == 1 && n > 1 && i == n - 1) sum = 0;
      if (mistake == BeyondABlock && j >= 64) sum *= 1.01f;
      if (mistake == LeftOut && i == j && n > 1) continue;
      c[i * n + j] = sum;
    }
}

// The same sums from the last k to the first.
void from_behind(int64_t n, const float* a, const float* b, float* c) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t k = n - 1; k >= 0; --k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
}

TEST(L01_MyTest, KillsEachMutant) {
  RecordProperty("exercise", "01.9");
  EXPECT_TRUE(is_a_product(product<None>)) << "a right product is refused";
  EXPECT_TRUE(is_a_product(from_behind)) << "a right product that sums in another order is refused";
  EXPECT_FALSE(is_a_product(product<LastOfTheSum>)) << "it leaves out the last product of each sum";
  const bool refuses = !is_a_product(product<BTransposed>);
  EXPECT_TRUE(refuses) << "it multiplies by B transposed";
  EXPECT_FALSE(is_a_product(product<NotZeroed>))
      << "it adds to what C held"
      << usual_mistake({{refuses, "C holds zeros, so what adds to it is not seen"}});
  EXPECT_FALSE(is_a_product(product<OneColumn>)) << "its column 2 is wrong by 0.01, if n > 4";
  EXPECT_FALSE(is_a_product(product<LastRowOfOdd>)) << "its last row is 0, if n is odd";
  EXPECT_FALSE(is_a_product(product<BeyondABlock>))
      << "columns from 64 on are 1 % too large"
      << usual_mistake({{refuses, "no size beyond a block of 64 is tried"}});
  EXPECT_FALSE(is_a_product(product<LeftOut>)) << "it does not write the diagonal";
}

}  // namespace
}  // namespace gradus
