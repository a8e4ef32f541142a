// Lesson 09: the formats compared with the conversions, and the batch from which mixed precision saves
// memory.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lessons/09_mixed_precision/batches.h"
#include "lessons/09_mixed_precision/formats.h"
#include "tests/lesson_testing.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

template <class T>
void expect_value_of_each_pattern(const Format& format) {
  for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
    T x;
    x.bits = uint16_t(pattern);
    const double expected = double(float(x)), value = format.value(pattern);
    const std::string which = std::string(name_of(format.dtype)) + " pattern " + std::to_string(pattern);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << which;
    } else {
      ASSERT_EQ(value, expected)
          << which +
                 usual_mistake({{pattern == 0 && value > 0,
                                 "pattern 0 is not 0: does a subnormal number have a hidden 1?"},
                                {pattern == 1 && value == expected / 2,
                                 "subnormal numbers have half of their value: which exponent do they have?"},
                                {std::isinf(expected) && std::isfinite(value),
                                 "the pattern of infinity gives a finite number"}});
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << which;
    }
  }
}
TEST(L09_Formats, ValueOfEachPattern) {
  RecordProperty("exercise", "09.4");
  expect_value_of_each_pattern<bf16>(formats()[1]);
  expect_value_of_each_pattern<fp16>(formats()[2]);
  for (const float x :
       {1.0f, -0.1f, 3.4028235e38f, 1.1754944e-38f, 1e-45f, -1.1754942e-38f, INFINITY, -0.0f}) {
    uint32_t pattern;
    std::memcpy(&pattern, &x, sizeof x);
    EXPECT_EQ(formats()[0].value(pattern), double(x));
  }
  EXPECT_TRUE(std::isnan(formats()[0].value(0x7FC00000)));
  EXPECT_TRUE(std::isnan(formats()[0].value(0xFF800001)));
}

// Just below 1 the numbers of fp16 are 2^-11 apart, those of bf16 2^-8; above 1, twice as far. A tie is
// rounded to the number whose last bit is 0.
TEST(L09_Formats, AMasterCopyAddsUpSmallUpdates) {
  RecordProperty("exercise", "09.1");
  const auto updated = [](DType t, double update, int64_t count, bool master_copy, double expected) {
    const double weight = after_updates(1, update, count, t, master_copy), exact = 1 - double(count) * update;
    EXPECT_EQ(weight, expected)
        << count << " updates of " << update << ", from a weight of 1 in " << name_of(t)
        << (master_copy ? ", with" : ", without") << " a master copy"
        << (master_copy
                ? usual_mistake({{weight == exact, "the weight is the master copy, not rounded to its type"},
                                 {weight == 1, "the master copy is not in fp32"}})
                : usual_mistake({{weight == rounded(exact, t),
                                  "without a master copy, the weight is rounded only at the end"}}));
  };
  updated(DType::F16, 0x1p-12, 0, false, 1), updated(DType::F16, 0x1p-12, 0, true, 1);
  updated(DType::F16, 0x1p-12, 1, false, 1), updated(DType::F16, 0x1p-12, 1, true, 1);
  updated(DType::F16, 0x1p-12, 2, false, 1), updated(DType::F16, 0x1p-12, 2, true, 1 - 0x1p-11);
  updated(DType::F16, 0x1p-12, 1000, false, 1), updated(DType::F16, 0x1p-12, 1000, true, 1 - 1000 * 0x1p-12);
  updated(DType::F16, -0x1p-11, 3, false, 1), updated(DType::F16, -0x1p-11, 3, true, 1 + 0x1p-9);
  updated(DType::BF16, 0x1p-10, 256, false, 1), updated(DType::BF16, 0x1p-10, 256, true, 0.75);
  updated(DType::BF16, 0.25, 3, false, 0.25), updated(DType::BF16, 0.25, 3, true, 0.25);
  EXPECT_EQ(after_updates(1 + 0x1p-12, 0, 1, DType::F16, true), 1) << "the weight has its type";
  // 2^-25 is half of the distance of fp32 numbers above 0.5.
  EXPECT_EQ(after_updates(0.75, 0x1p-26, 4, DType::F32, true), 0.75)
      << "a master copy is in fp32, so it is rounded to fp32 after each update";
}

TEST(L09_Formats, RangeAndPrecision) {
  RecordProperty("exercise", "09.4");
  for (const Format& f : formats()) {
    const std::string name = name_of(f.dtype);
    const auto is = [&](double x) { return rounded(x, f.dtype); };
    EXPECT_EQ(1 + f.exponent + f.mantissa, 8 * size_of(f.dtype)) << name;
    EXPECT_EQ(is(f.largest()), f.largest()) << name;
    EXPECT_TRUE(std::isinf(is(f.largest() * (1 + f.epsilon())))) << name;
    EXPECT_EQ(is(f.smallest()), f.smallest()) << name;
    EXPECT_EQ(is(f.smallest() * 0.49), 0) << name;
    EXPECT_EQ(is(f.smallest_normal() * (1 + f.epsilon())), f.smallest_normal() * (1 + f.epsilon())) << name;
    EXPECT_NE(is(f.smallest_normal() / 2 * (1 + f.epsilon())), f.smallest_normal() / 2 * (1 + f.epsilon()))
        << name << ": a subnormal number has fewer digits";
    EXPECT_EQ(is(1 + f.epsilon()), 1 + f.epsilon()) << name;
    EXPECT_EQ(is(1 + f.epsilon() * 0.49), 1) << name;
  }
}

// Reference numbers, (j) and (p).
TEST(L09_Formats, PublishedValues) {
  RecordProperty("exercise", "09.4");
  const Format bf16 = formats()[1], fp16 = formats()[2];
  EXPECT_EQ(fp16.largest(), 65504);
  EXPECT_EQ(fp16.smallest_normal(), 0x1p-14);
  EXPECT_EQ(fp16.smallest(), 0x1p-24);
  EXPECT_NEAR(bf16.largest(), 3.39e38, 0.005e38);
  struct Vector {
    double x, fp16, bf16;
  };
  for (const Vector& v : {Vector{0.1, 0.0999755859375, 0.10009765625},
                          {1.0 / 3, 0.333251953125, 0.333984375},
                          {1.0009765625, 1.0009765625, 1.0},
                          {2049, 2048, 2048},
                          {65504, 65504, 65536},
                          {65520, INFINITY, 65536},
                          {M_PI, 3.140625, 3.140625},
                          {0.001, 0.0010004043579101562, 0.00099945068359375}}) {
    EXPECT_EQ(rounded(v.x, DType::F16), v.fp16) << v.x;
    EXPECT_EQ(rounded(v.x, DType::BF16), v.bf16) << v.x;
  }
}

// 2 N more bytes for the parameters, and 2 T L (16 C + H T) fewer bytes per sequence.
TEST(L09_Batches, TheCrossing) {
  RecordProperty("exercise", "09.3");
  for (TransformerConfig c :
       {TransformerConfig{.vocab = 40, .context = 16, .layers = 3, .heads = 2, .channels = 48},
        TransformerConfig{.vocab = 1000, .context = 8, .layers = 1, .heads = 4, .channels = 64},
        TransformerConfig{.vocab = 7, .context = 64, .layers = 5, .heads = 1, .channels = 16}}) {
    const int64_t T = c.context, C = c.channels, L = c.layers;
    const int64_t N = c.vocab * C + T * C + L * (12 * C * C + 13 * C) + 2 * C,
                  less = T * L * (16 * C + c.heads * T);
    const int64_t crossing = N / less + (N % less != 0);
    EXPECT_EQ(predicted_crossing(c), crossing) << "N = " << N << ", the smallest whole batch";
  }
  // N = 16 V + 16 * 16 + 3280 + 32 = 16 V + 3568, and less = 16 (256 + 16) = 4352: at V = 49 it is once that.
  TransformerConfig even{.vocab = 49, .context = 16, .layers = 1, .heads = 1, .channels = 16};
  EXPECT_EQ(predicted_crossing(even), 1) << "equal memory is enough";
  even.vocab = 50;
  EXPECT_EQ(predicted_crossing(even), 2);
  even.vocab = 10'000;  // 163,568 / 4,352 = 37.6
  const int64_t large = predicted_crossing(even);
  EXPECT_EQ(large, 38) << usual_mistake({{large == 37, "37.6 is rounded down: does a batch of 37 suffice?"}});
}

TEST(L09_Batches, TheCrossingIsWhereAllocatedBytesCross) {
  RecordProperty("exercise", "09.3");
  const Lesson lesson = lesson_with({"--device=meta"}, "09_mixed_precision");
  const TransformerConfig c{.vocab = 64, .context = 32, .layers = 4, .heads = 4, .channels = 256};
  const int64_t measured = measured_crossing(c);
  EXPECT_GT(measured, 2);
  EXPECT_NEAR(double(predicted_crossing(c)), double(measured), 1);
  EXPECT_GT(step_cost(lesson, c, "mixed", measured - 1).bytes,
            step_cost(lesson, c, "fp32", measured - 1).bytes);
  EXPECT_LE(step_cost(lesson, c, "mixed", measured).bytes, step_cost(lesson, c, "fp32", measured).bytes);
}

TEST(L09_Batches, FourBatchSizesAreCompared) {
  RecordProperty("exercise", "09.3");
  const Lesson lesson = lesson_with({"--device=meta"}, "09_mixed_precision");
  const TransformerConfig c{.vocab = 64, .context = 32, .layers = 4, .heads = 4, .channels = 256};
  const BatchCosts costs = batch_costs(lesson, c);
  const int64_t crossing = predicted_crossing(c);
  EXPECT_EQ(costs.parameters, c.parameter_count());
  EXPECT_EQ(costs.predicted, crossing);
  EXPECT_EQ(costs.measured, measured_crossing(c));
  ASSERT_EQ(costs.batches.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const auto& b = costs.batches[i];
    EXPECT_EQ(b.size, std::vector<int64_t>({1, crossing - 1, crossing, 4 * crossing})[i]);
    EXPECT_EQ(b.fp32.bytes, step_cost(lesson, c, "fp32", b.size).bytes);
    EXPECT_EQ(b.mixed.bytes, step_cost(lesson, c, "mixed", b.size).bytes);
  }
}

}  // namespace
}  // namespace gradus
