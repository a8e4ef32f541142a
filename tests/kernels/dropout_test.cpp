// Dropout and its random bits: which elements are kept depends on seed, step, ordinal, sample and element,
// and on nothing else.
#include "kernels/philox.h"
#include "tests/kernels/kernel_contract.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L03_Dropout);

TEST(L02_KernelsOnCpu, PhiloxKnownAnswers) {  // Random123's kat_vectors for philox4x32, 10 rounds
  EXPECT_EQ(philox(0, 0, 0), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The places of block, ordinal, sample and step in the counter: each has room for its largest value.
TEST(L02_KernelsOnCpu, DropoutWordsShareTheCounterWithoutCollision) {
  EXPECT_EQ(dropout_words(9, 5, 3, 4, 2), philox(9, 0x0000'0300'0000'0002, 0x0000'0050'0000'0004));
  EXPECT_EQ(dropout_words(9, 0, 0xFFFFFF, 0, 0xFF'FFFF'FFFF), philox(9, ~0ull, 0));
  EXPECT_EQ(dropout_words(9, 0xFFFFFFF, 0, 0xF'FFFF'FFFF, 0), philox(9, 0, ~0ull));
}

TEST(L02_KernelsOnCpu, Uniform01IsTheUpper24Bits) {
  EXPECT_EQ(uniform01(0), 0);
  EXPECT_EQ(uniform01(0xFF), 0);
  EXPECT_EQ(uniform01(0x100), 0x1p-24f);
  EXPECT_EQ(uniform01(0x40000000), 0.25f);
  EXPECT_EQ(uniform01(0xFFFFFFFF), 0x0.FFFFFFp0f);
}

struct Draw {  // what a mask depends on, each with its highest bit set
  uint64_t seed = 0x8000'0000'0000'002A;
  int64_t step = 0x8000'005;
  uint32_t ordinal = 0x80'0003;
  int64_t first_sample = 0, first_element = 0;
};
void dropout(TestCtx& ctx, RowShape s, const Buffer& x, Out y, float p, const Draw& d) {
  ctx.scalars().step = d.step;
  table().dropout(ctx, s, x.in(), y, p, {d.seed, d.ordinal, d.first_sample, nullptr, d.first_element});
}

// Kept elements are multiplied by 1/(1-p) in fp32 for every T, because 16 bits are too few for 1/0.9.
TEST_P(L03_Dropout, Dropout) {
  const Draw d{.first_sample = 0x8'0000'0007};
  const float just_kept = uniform01(dropout_words(d.seed, d.step, d.ordinal, d.first_sample, 0)[0]);
  for (const DType T : float_types())
    for (const RowShape s : {RowShape{0, 5}, RowShape{3, 0}, RowShape{3, 1}, RowShape{3, 7}, RowShape{2, 255},
                             RowShape{2, 257}, RowShape{5, 2003}})
      for (const float p : {0.0f, 0.1f, just_kept, 1.0f}) {
        const int64_t n = s.rows * s.cols;
        const Buffer x = Buffer::random(T, n, 1);
        const std::vector<double> vx = x.values();
        const double factor = T == DType::F64 ? 1 / (1 - double(p)) : double(1.0f / (1.0f - p));
        Expected y{"y", {T}, {}};
        for (int64_t i = 0; i < n; ++i) {
          const int64_t e = i % s.cols;
          const Philox4 words = dropout_words(d.seed, d.step, d.ordinal, d.first_sample + i / s.cols, e / 4);
          y.value.push_back(double(words[e % 4] >> 8) >= double(p) * 0x1p24 ? vx[i] * factor : 0);
        }
        TestCtx ctx;
        const TestedCall call{"dropout", {y}, [&](const Ctx&, const std::vector<Out>& out) {
                                dropout(ctx, s, x, out[0], p, d);
                              }};
        ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
      }
}

// In a part of each sample, dropout drops the same elements as in the whole sample, wherever in a draw of
// four the part begins.
TEST_P(L03_Dropout, OfAPartOfTheElements) {
  const int64_t cols = 2003;
  const Buffer x = Buffer::random(DType::F32, 2 * cols, 1);
  Buffer whole = Buffer::zeros(DType::F32, 2 * cols);
  TestCtx ctx;
  dropout(ctx, {2, cols}, x, whole.out(Write::Set), 0.4f, {});
  for (const int64_t first : {0, 1, 2, 3, 4, 255, 257, 1022, 2002, 2003})
    for (const int64_t n :
         {int64_t(1), int64_t(7), int64_t(1021), int64_t(1022), int64_t(1023), int64_t(1024), cols}) {
      const int64_t count = std::min(n, cols - first);
      std::vector<double> part, expected;
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t i = first; i < first + count; ++i) {
          part.push_back(x.values()[size_t(row * cols + i)]);
          expected.push_back(whole.values()[size_t(row * cols + i)]);
        }
      Buffer y = Buffer::zeros(DType::F32, 2 * count);
      dropout(ctx, {2, count}, Buffer(DType::F32, part), y.out(Write::Set), 0.4f, {.first_element = first});
      ASSERT_EQ(y.values(), expected) << first << ", " << count;
    }
  const int64_t far = (int64_t(1) << 41) + 3;  // as far as the counter has room, and more than 32 bits
  Buffer y = Buffer::zeros(DType::F32, 64);
  const Draw d{.first_element = far};
  dropout(ctx, {1, 64}, Buffer(DType::F32, std::vector<double>(64, 1)), y.out(Write::Set), 0.5f, d);
  for (int64_t i = 0; i < 64; ++i) {
    const int64_t e = far + i;
    const bool kept = uniform01(dropout_words(d.seed, d.step, d.ordinal, 0, e / 4)[size_t(e % 4)]) >= 0.5f;
    EXPECT_EQ(y.values()[size_t(i)], kept ? 2 : 0) << i;
  }
}

}  // namespace
}  // namespace gradus
