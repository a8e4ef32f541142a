// The number formats, against bit patterns computed by hand from the definitions of IEEE 754 and bf16. They
// have a sign bit, 5 or 8 bits of exponent, and 10 or 7 bits of mantissa.
#include "tests/kernels/kernel_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L02_Dtypes);

struct Conversion {
  uint32_t fp32;
  uint16_t bits;
};

constexpr Conversion kToBf16[] = {
    {0x00000000, 0x0000}, {0x80000000, 0x8000},                        // zeros
    {0x3F800000, 0x3F80}, {0xBF800000, 0xBF80},                        // 1, -1
    {0x40490FDB, 0x4049},                                              // pi, down
    {0x3DCCCCCD, 0x3DCD},                                              // 0.1, up
    {0x3F807FFF, 0x3F80}, {0x3F808001, 0x3F81},                        // on both sides of a tie
    {0x3F808000, 0x3F80}, {0x3F818000, 0x3F82},                        // ties to even: down, up
    {0xBF808000, 0xBF80}, {0xBF818000, 0xBF82}, {0x3FFF8000, 0x4000},  // a tie that carries into the exponent
    {0x7F7F0000, 0x7F7F}, {0x7F7F7FFF, 0x7F7F},  // the largest, and what still rounds to it
    {0x7F7F8000, 0x7F80}, {0xFF7FFFFF, 0xFF80},  // overflow
    {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80},  // infinities
    {0x00800000, 0x0080}, {0x007F8000, 0x0080},  // the smallest normal; a subnormal that rounds up to it
    {0x00010000, 0x0001}, {0x00008000, 0x0000},  // the smallest; half of it is a tie with zero
    {0x00008001, 0x0001}, {0x00018000, 0x0002}, {0x80000001, 0x8000},
    {0x7FC00000, 0x7FC0}, {0xFFC00000, 0xFFC0},  // NaN stays NaN, even if only the bits cut off are set
    {0x7F800001, 0x7FC0}, {0xFF800001, 0xFFC0}, {0x7FFFFFFF, 0x7FFF},
};

constexpr Conversion kToFp16[] = {
    {0x00000000, 0x0000}, {0x80000000, 0x8000},                        // zeros
    {0x3F800000, 0x3C00}, {0xC0000000, 0xC000},                        // 1, -2
    {0x40490FDB, 0x4248},                                              // pi, down
    {0x3DCCCCCD, 0x2E66},                                              // 0.1, down
    {0x3F800FFF, 0x3C00}, {0x3F801001, 0x3C01},                        // on both sides of a tie
    {0x3F801000, 0x3C00}, {0x3F803000, 0x3C02},                        // ties to even: down, up
    {0xBF801000, 0xBC00}, {0xBF803000, 0xBC02}, {0x3FFFF000, 0x4000},  // a tie that carries into the exponent
    {0x477FE000, 0x7BFF}, {0x477FEFFF, 0x7BFF},  // 65504, the largest, and what still rounds to it
    {0x477FF000, 0x7C00}, {0xC7800000, 0xFC00}, {0x7F7FFFFF, 0x7C00},  // overflow: from 65520 on
    {0x7F800000, 0x7C00}, {0xFF800000, 0xFC00},                        // infinities
    {0x38800000, 0x0400}, {0x387FC000, 0x03FF},  // 2^-14, the smallest normal, and the largest subnormal
    {0x387FE000, 0x0400}, {0x387FDFFF, 0x03FF},  // between them: a tie to even, and what is below it
    {0x33800000, 0x0001}, {0xB3800000, 0x8001},  // 2^-24, the smallest
    {0x33000000, 0x0000}, {0x33000001, 0x0001},  // 2^-25: a tie with zero, and what is above it
    {0x33C00000, 0x0002}, {0x34200000, 0x0002},  // 1.5 and 2.5 times 2^-24: ties to even
    {0x32FFFFFF, 0x0000}, {0x00000001, 0x0000}, {0x80000001, 0x8000},
    {0x7FC00000, 0x7E00}, {0xFFC00000, 0xFE00},  // NaN stays NaN, even if only the bits cut off are set
    {0x7F800001, 0x7E00}, {0xFF800001, 0xFE00}, {0x7FFFFFFF, 0x7FFF},
};

// In the other direction every number is exact.
constexpr Conversion kFromBf16[] = {{0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x3F800000, 0x3F80},
                                    {0x00010000, 0x0001}, {0x007F0000, 0x007F}, {0x7F7F0000, 0x7F7F},
                                    {0xFF800000, 0xFF80}, {0x7FC00000, 0x7FC0}};
constexpr Conversion kFromFp16[] = {{0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x3F800000, 0x3C00},
                                    {0xC0000000, 0xC000}, {0x33800000, 0x0001}, {0x34000000, 0x0002},
                                    {0x34400000, 0x0003}, {0x387FC000, 0x03FF}, {0xB87FC000, 0x83FF},
                                    {0x38800000, 0x0400}, {0x477FE000, 0x7BFF}, {0x7F800000, 0x7C00},
                                    {0xFF800000, 0xFC00}, {0x7FC00000, 0x7E00}, {0xFFC02000, 0xFE01}};

template <class Half>
constexpr DType kHalf = std::is_same_v<Half, bf16> ? DType::BF16 : DType::F16;

// By the kernel, which converts several numbers at once, and by the conversion of one number.
template <class Half, size_t N>
void expect_narrowed(const Conversion (&numbers)[N]) {
  SharedVector<uint32_t> from(N);
  SharedVector<uint16_t> to(N);
  for (size_t i = 0; i < N; ++i) from[i] = numbers[i].fp32;
  TestCtx ctx;
  table().cast(ctx, N, {from.data(), DType::F32}, {to.data(), kHalf<Half>});
  wait_for_kernels();
  for (size_t i = 0; i < N; ++i) {
    EXPECT_EQ(to[i], numbers[i].bits) << std::hex << "0x" << numbers[i].fp32;
    EXPECT_EQ(Half(std::bit_cast<float>(numbers[i].fp32)).bits, numbers[i].bits)
        << std::hex << numbers[i].fp32;
  }
}
template <class Half, size_t N>
void expect_widened(const Conversion (&numbers)[N]) {
  SharedVector<uint16_t> from(N);
  SharedVector<uint32_t> to(N);
  for (size_t i = 0; i < N; ++i) from[i] = numbers[i].bits;
  TestCtx ctx;
  table().cast(ctx, N, {from.data(), kHalf<Half>}, {to.data(), DType::F32});
  wait_for_kernels();
  for (size_t i = 0; i < N; ++i) {
    EXPECT_EQ(to[i], numbers[i].fp32) << std::hex << "0x" << numbers[i].bits;
    const Half one = std::bit_cast<Half>(numbers[i].bits);
    EXPECT_EQ(std::bit_cast<uint32_t>(float(one)), numbers[i].fp32) << std::hex << "0x" << numbers[i].bits;
  }
}

TEST_P(L02_Dtypes, Bf16IsRoundedToNearestEven) { expect_narrowed<bf16>(kToBf16); }
TEST_P(L02_Dtypes, Fp16IsRoundedToNearestEven) { expect_narrowed<fp16>(kToFp16); }
TEST_P(L02_Dtypes, Bf16AndFp16AreExactInFp32) {
  expect_widened<bf16>(kFromBf16);
  expect_widened<fp16>(kFromFp16);
}

// To fp32 and back, by the kernel and by the conversion of one number: bitwise equal, except that NaNs only
// have to stay NaNs.
template <class Half>
void expect_each_comes_back(uint16_t infinity) {
  SharedVector<uint16_t> from(65536), to(65536);
  SharedVector<float> wide(65536);
  for (size_t i = 0; i < from.size(); ++i) from[i] = uint16_t(i);
  TestCtx ctx;
  table().cast(ctx, 65536, {from.data(), kHalf<Half>}, {wide.data(), DType::F32});
  table().cast(ctx, 65536, {wide.data(), DType::F32}, {to.data(), kHalf<Half>});
  wait_for_kernels();
  for (size_t i = 0; i < from.size(); ++i) {
    const bool nan = (from[i] & 0x7FFF) > infinity;
    const float alone = std::bit_cast<Half>(from[i]);
    for (const float f : {wide[i], alone}) ASSERT_EQ(std::isnan(f), nan) << name_of(kHalf<Half>) << " " << i;
    for (const uint16_t bits : {to[i], Half(alone).bits})
      ASSERT_TRUE(nan ? (bits & 0x7FFF) > infinity : bits == from[i]) << name_of(kHalf<Half>) << " " << i;
  }
}
TEST_P(L02_Dtypes, EachPatternComesBack) {
  expect_each_comes_back<bf16>(0x7F80);
  expect_each_comes_back<fp16>(0x7C00);
}

TEST(L02_DtypesOnCpu, SizesNamesAndTypes) {
  const std::tuple<DType, int64_t, const char*> rows[] = {
      {DType::F64, 8, "fp64"},  {DType::F32, 4, "fp32"},  {DType::BF16, 2, "bf16"}, {DType::F16, 2, "fp16"},
      {DType::I64, 8, "int64"}, {DType::I32, 4, "int32"}, {DType::I8, 1, "int8"},   {DType::U8, 1, "uint8"}};
  for (const auto& [t, size, name] : rows) {
    EXPECT_EQ(size_of(t), size) << name;
    EXPECT_STREQ(name_of(t), name);
  }
  EXPECT_EQ(acc_dtype<double>, DType::F64);
  EXPECT_EQ(acc_dtype<float>, DType::F32);
  EXPECT_TRUE((std::is_same_v<acc_t<double>, double> && std::is_same_v<acc_t<bf16>, float>));
}

}  // namespace
}  // namespace gradus
