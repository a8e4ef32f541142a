// Code that one compiler gets wrong: g++ 12 for AVX-512 writes 64 bytes of constants that begin with equal
// numbers as copies of the first one. Options in the Makefile prevent this.
#include <gtest/gtest.h>

#include <cstring>

namespace gradus {
namespace {

// Compares constants that are written as a whole with the same constants in memory.
#define EXPECT_CONSTANTS(T, ...)                                                                  \
  {                                                                                               \
    const auto write = [](T * to) __attribute__((noinline)) {                                     \
      const T constants[] = {__VA_ARGS__};                                                        \
      std::memcpy(to, constants, sizeof constants);                                               \
    };                                                                                            \
    T got[64];                                                                                    \
    write(got);                                                                                   \
    static const volatile T expected[] = {__VA_ARGS__};                                           \
    for (size_t i = 0; i < sizeof expected / sizeof(T); ++i) EXPECT_EQ(got[i], expected[i]) << i; \
  }

TEST(L01_Compiler, ConstantsAreWhatIsWritten) {
  EXPECT_CONSTANTS(double, 4, 4, 0, 0, 0, 0, 0, 0);
  EXPECT_CONSTANTS(double, 4, 4, 0, 0);
  EXPECT_CONSTANTS(int64_t, 3, 3, 0, 0, 0, 0, 0, 0);
  EXPECT_CONSTANTS(float, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  EXPECT_CONSTANTS(int32_t, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  EXPECT_CONSTANTS(int8_t, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                   0, 0, 0, 0);
}

}  // namespace
}  // namespace gradus
