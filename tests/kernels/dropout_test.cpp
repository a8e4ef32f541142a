// Dropout and its random words: which elements are kept is a function of seed, step, ordinal, sample and
// element, and of nothing else.
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

// Where block, ordinal, sample and step lie in the counter: as far apart as the largest of each needs.
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
  int64_t first_sample = 0;
};
void dropout(TestCtx& ctx, RowShape s, const Buffer& x, Out y, float p, const Draw& d) {
  ctx.scalars().step = d.step;
  table().dropout(ctx, s, x.in(), y, p, {d.seed, d.ordinal, d.first_sample});
}

// The kept are raised by 1/(1-p) in fp32, whatever T is: 1/0.9 has no 16-bit neighbour that would do.
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
        const KernelCall call{"dropout", {y}, [&](const Ctx&, const std::vector<Out>& out) {
                                dropout(ctx, s, x, out[0], p, d);
                              }};
        ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
      }
}

constexpr int64_t kPerSample = 2003;  // no multiple of the 4 elements that share a draw, nor of a block's
constexpr double kP = 0.25;

// What 8 samples of ones become, in micro-batches of `each`.
std::vector<double> mask_of(Draw d, int64_t each = 8, DType T = DType::F32) {
  const Buffer x(T, std::vector<double>(each * kPerSample, 1.0));
  std::vector<double> kept;
  TestCtx ctx;
  for (int64_t first = 0; first < 8; first += each, d.first_sample += each) {
    Buffer y(T, std::vector<double>(each * kPerSample, NAN));
    dropout(ctx, {each, kPerSample}, x, y.out(Write::Set), float(kP), d);
    for (const double v : y.values()) kept.push_back(v != 0);
  }
  return kept;
}

TEST_P(L03_Dropout, DropoutMasksDoNotDependOnHowABatchIsCutNorOnTheType) {
  const std::vector<double> whole = mask_of({});
  EXPECT_EQ(mask_of({}, 4), whole);
  EXPECT_EQ(mask_of({}, 1), whole);
  EXPECT_EQ(mask_of({}, 8, DType::BF16), whole);
  EXPECT_EQ(mask_of({}, 2, DType::F16), whole);
}

// Of n pairs, how many are equal: for independent masks a share of p^2 + (1-p)^2, within 5 standard errors.
void expect_independent(const char* what, const std::vector<double>& a, const std::vector<double>& b) {
  double equal = 0;
  for (size_t i = 0; i < b.size(); ++i) equal += a[i] == b[i];
  const double share = kP * kP + (1 - kP) * (1 - kP), n = double(b.size());
  EXPECT_NEAR(equal / n, share, 5 * std::sqrt(share * (1 - share) / n)) << what;
}

TEST_P(L03_Dropout, DropoutMasksAreRandomAndIndependent) {
  const std::vector<double> mask = mask_of({});
  double kept = 0;
  for (const double v : mask) kept += v;
  EXPECT_NEAR(kept / double(mask.size()), 1 - kP, 5 * std::sqrt(kP * (1 - kP) / double(mask.size())));
  expect_independent("two seeds", mask, mask_of({.seed = 43}));
  expect_independent("two seeds that differ in the upper half", mask, mask_of({.seed = 42 + (1ull << 32)}));
  expect_independent("two steps", mask, mask_of({.step = 6}));
  expect_independent("two ordinals", mask, mask_of({.ordinal = 4}));
  expect_independent("two batches", mask, mask_of({.first_sample = 8}));
  for (const int64_t apart : {int64_t(1), int64_t(2), int64_t(4), int64_t(1024), kPerSample}) {
    const std::vector<double> shifted(mask.begin() + apart, mask.end());
    expect_independent(("elements apart by " + std::to_string(apart)).c_str(), mask, shifted);
  }
}

}  // namespace
}  // namespace gradus
