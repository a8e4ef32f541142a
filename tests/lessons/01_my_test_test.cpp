// Exercise 01.4: is_a_product must accept correct products with any order of summation, and reject the wrong
// products below. Each of them has one mistake.
#include <gtest/gtest.h>

#include <algorithm>

#include "lessons/01_gemm/my_test.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

// C = A B with one mistake, or with none.
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

// A correct product that adds from the last k to the first.
void from_behind(int64_t n, const float* a, const float* b, float* c) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t k = n - 1; k >= 0; --k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
}

TEST(L01_MyTest, KillsEachMutant) {
  RecordProperty("exercise", "01.4");
  EXPECT_TRUE(is_a_product(product<None>)) << "is_a_product rejects a correct product";
  EXPECT_TRUE(is_a_product(from_behind))
      << "is_a_product rejects a correct product that adds in a different order";
  EXPECT_FALSE(is_a_product(product<LastOfTheSum>))
      << "is_a_product accepts a function that leaves out the last product of each sum";
  const bool rejects = !is_a_product(product<BTransposed>);
  EXPECT_TRUE(rejects) << "is_a_product accepts a function that multiplies by B transposed";
  EXPECT_FALSE(is_a_product(product<NotZeroed>))
      << "is_a_product accepts a function that adds to the earlier content of C"
      << usual_mistake(
             {{rejects,
               "your C holds zeros before the call, so your test does not see that it is added to"}});
  EXPECT_FALSE(is_a_product(product<OneColumn>))
      << "is_a_product accepts a function whose column 2 is wrong by 0.01 if n > 4";
  EXPECT_FALSE(is_a_product(product<LastRowOfOdd>))
      << "is_a_product accepts a function whose last row is 0 if n is odd";
  EXPECT_FALSE(is_a_product(product<BeyondABlock>))
      << "is_a_product accepts a function whose columns from 64 on are 1 % too large"
      << usual_mistake({{rejects, "your test tries no n above 64, the size of a block"}});
  EXPECT_FALSE(is_a_product(product<LeftOut>))
      << "is_a_product accepts a function that does not write the diagonal of C";
}

}  // namespace
}  // namespace gradus
