// Lesson 09: the formats compared with the conversions, the losses of 16 bits, the batch from which mixed
// precision saves memory, and clipping with a loss scale.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lessons/07_accumulation/ways.h"
#include "lessons/09_mixed_precision/batches.h"
#include "lessons/09_mixed_precision/formats.h"
#include "lessons/09_mixed_precision/underflow.h"
#include "src/optim/optimizer.h"
#include "tests/devices.h"
#include "tests/lesson_testing.h"
#include "tests/lessons/report_testing.h"
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
          << which + usual_mistake(
                         {{pattern == 0 && value > 0, "pattern 0 is not 0: does a subnormal number have a hidden 1?"},
                          {pattern == 1 && value == expected / 2, "subnormal numbers have half of their value: which exponent do they have?"},
                          {std::isinf(expected) && std::isfinite(value), "the pattern of infinity gives a finite number"}});
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << which;
    }
  }
}
TEST(L09_Formats, ValueOfEachPattern) {
  RecordProperty("exercise", "09.2");
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

TEST(L09_Formats, RangeAndPrecision) {
  RecordProperty("exercise", "09.2");
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
  RecordProperty("exercise", "09.2");
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

TEST(L09_Underflow, ShareLost) {
  RecordProperty("exercise", "09.3");
  EXPECT_EQ(share_lost({1, -2, 3, 4e-30}, {1, -2, 0, 0}), 0.5);
  EXPECT_EQ(share_lost({0, 0, 0, 5}, {0, 0, 0, 5}), 0) << "a number that was 0 before is not lost";
  const double share = share_lost({0, 0, -7, 5}, {0, 1, 0, 5});  // numbers that were 0 before do not count
  EXPECT_EQ(share, 0.5) << usual_mistake({{share == 0.25, "the total also counts numbers that were 0 before"},
                                          {share == 1, "a number that was 0 before is counted as lost"}});
  EXPECT_EQ(share_lost({1, 2, 3}, {9, -9, INFINITY}), 0) << "a wrong number is not lost";
  EXPECT_EQ(share_lost({1, 2, 3, 4}, {0, -0.0, 0, 0}), 1);
}

const TransformerConfig kModel{.vocab = 11, .context = 5, .layers = 1, .heads = 2, .channels = 8};

TextBatch small_batch() {
  TextBatch batch{6, 5, {}, {}};
  for (int i = 0; i < 30; ++i) batch.ids.push_back(i * i % 11), batch.targets.push_back((3 * i + 1) % 11);
  return batch;
}

struct L09_MeasuredOn : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
  Transformer model{kModel};
  L09_MeasuredOn() { model.initialize(1); }
};
ON_DEVICES_WITH_DATA(L09_MeasuredOn);

// (p - [target]) / n: the sum of a row is 0, and only the element of the target is negative.
TEST_P(L09_MeasuredOn, GradientsOfLogits) {
  const TextBatch batch = small_batch();
  const auto gradients = [&](const char* recipe, double scale, int64_t targets) {
    return activation_gradients(Activation::Logits, recipe, scale, model, batch, targets);
  };
  const std::vector<double> of_30 = gradients("fp32", 1, 30), of_1e7 = gradients("fp32", 1, 10'000'000),
                            lost = gradients("mixed-fp16", 1, 10'000'000),
                            kept = gradients("mixed-fp16", 65536, 10'000'000);
  ASSERT_EQ(of_30.size(), 330u);
  for (size_t row = 0; row < 30; ++row) {
    double sum = 0;
    for (size_t v = 0; v < 11; ++v) {
      const size_t i = row * 11 + v;
      sum += of_30[i];
      EXPECT_EQ(of_30[i] < 0, int(v) == batch.targets[row]) << row << " " << v;
      EXPECT_NEAR(of_1e7[i], of_30[i] * 3e-6, 1e-12);
      EXPECT_NEAR(kept[i], of_1e7[i], 0.01 * std::abs(of_1e7[i]));
      EXPECT_EQ(lost[i] == 0, int(v) != batch.targets[row]) << "1e-8 underflows, 1e-7 does not";
    }
    EXPECT_NEAR(sum, 0, 1e-7);
  }
}

// The first token of a sequence attends only to itself, so its query has no gradient.
TEST_P(L09_MeasuredOn, GradientsOfQueries) {
  const TextBatch batch = small_batch();
  const auto gradients = [&](const char* recipe, double scale, int64_t targets) {
    return activation_gradients(Activation::Queries, recipe, scale, model, batch, targets);
  };
  const std::vector<double> exact = gradients("fp32", 1, 30), of_1e7 = gradients("fp32", 1, 10'000'000);
  ASSERT_EQ(exact.size(), size_t(6 * 5 * 8));
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(std::abs(exact[i]) < 1e-9, i / 8 % 5 == 0) << i;
    EXPECT_NEAR(of_1e7[i], exact[i] * 3e-6, 1e-12);
  }
  EXPECT_LT(distance(gradients("mixed-fp16", 0x1p20, 30), exact), 0.05);
  EXPECT_EQ(share_lost(of_1e7, gradients("mixed-fp16", 1, 10'000'000)), 1);
}

TEST(L09_Underflow, TokensOfAText) {
  std::vector<double> logits(512);
  for (size_t i = 0; i < 512; ++i) logits[i] = double(i);
  EXPECT_EQ(of_tokens(true, "a\xff", logits), (std::vector<double>{97, 255, 353, 511}));
  const std::vector<double> absent = of_tokens(false, "a\xff", logits);
  EXPECT_EQ(absent.size(), 508u);
  EXPECT_EQ(std::count(absent.begin(), absent.end(), 97), 0);
}

TEST_P(L09_MeasuredOn, GradientsOfWeightsDoNotDependOnScaleOrMicroBatches) {
  const TextBatch batch = small_batch();
  const std::vector<double> fp32 = weight_gradients("fp32", 1, model, batch, 1);
  EXPECT_EQ(int64_t(fp32.size()), model.parameters.numel());
  const auto off = [&](const std::string& recipe, double scale, int64_t micro_batches) {
    return distance(weight_gradients(recipe, scale, model, batch, micro_batches), fp32);
  };
  EXPECT_LT(off("fp32", 1024, 3), 1e-6);
  EXPECT_LT(off("mixed-fp16", 1024, 2), 0.02);
  EXPECT_GT(off("mixed-fp16", 1024, 2), 1e-5) << "it is computed in fp16";
  EXPECT_LT(off("mixed", 1, 2), 0.05);
}

TEST_P(L09_MeasuredOn, WeightsThatAnUpdateDoesNotChange) {
  const TextBatch batch = small_batch();
  const auto share = [&](DType t, double rate) { return share_unchanged(t, rate, model, batch); };
  EXPECT_EQ(share(DType::F32, 0), 1) << "a learning rate of 0 changes no weight";
  EXPECT_LT(share(DType::F32, 1e-3), 0.05);
  EXPECT_LT(share(DType::BF16, 1e-1), 0.05);
  // There are 24 gains of 1, and weights of about 0.02. Half the distance of bf16 numbers is 2^-9 just below
  // 1, and 2^-14 at 0.02.
  EXPECT_GT(share(DType::BF16, 1e-5), 0.5);
  EXPECT_GT(share(DType::BF16, 1e-5), share(DType::F16, 1e-5));
  EXPECT_GT(share(DType::F16, 1e-5), share(DType::F32, 1e-5));
}

TEST_P(L09_MeasuredOn, AScaleThatIsTooHighIsHalvedByEachSkippedUpdate) {
  RecordProperty("exercise", "09.1");
  const std::vector<ScaledUpdate> updates = scaled_updates(model, small_batch());
  ASSERT_EQ(updates.size(), 12u);
  int64_t skipped = 0;
  double scale = 0x1p25;
  for (const ScaledUpdate& u : updates) {
    EXPECT_TRUE(scale == 0 || u.scale == scale) << u.scale;
    scale = u.skipped ? u.scale / 2 : 0;  // after an update that is not skipped it may be doubled
    EXPECT_EQ(u.weights, model.parameters.numel());
    EXPECT_TRUE(u.skipped ? u.changed == 0 : u.changed > u.weights / 2) << u.changed;
    skipped += u.skipped;
  }
  EXPECT_GE(skipped, 3) << "1/30 times 2^25, 2^24 and 2^23 are above 65504";
  EXPECT_LE(skipped, 8);
  EXPECT_EQ(failed_checks([&](Report& r) { scale_table(updates, 20, r); }), Names{});
}

TEST_P(L09_MeasuredOn, SharesOfEachRateAndFormat) {
  const TextBatch batch = small_batch();
  const std::vector<Unchanged> rates = unchanged_weights(model, batch);
  ASSERT_EQ(rates.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const auto share = [&](DType t) { return share_unchanged(t, rates[i].learning_rate, model, batch); };
    EXPECT_EQ(rates[i].learning_rate, std::vector<double>({1e-3, 1e-4, 1e-5})[i]);
    EXPECT_EQ(rates[i].fp32, share(DType::F32));
    EXPECT_EQ(rates[i].fp16, share(DType::F16));
    EXPECT_EQ(rates[i].bf16, share(DType::BF16));
  }
}

// 2 N more bytes for the parameters, and 2 T L (16 C + H T) fewer bytes per sequence.
TEST(L09_Batches, TheCrossing) {
  RecordProperty("exercise", "09.6");
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
  RecordProperty("exercise", "09.6");
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
  RecordProperty("exercise", "09.6");
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
    EXPECT_EQ(b.size, std::vector<int64_t>({1, crossing / 2, crossing, 4 * crossing})[i]);
    EXPECT_EQ(b.fp32.bytes, step_cost(lesson, c, "fp32", b.size).bytes);
    EXPECT_EQ(b.mixed.bytes, step_cost(lesson, c, "mixed", b.size).bytes);
  }
}

// The norm of the gradient is clipped after it is divided by the scale. With SGD, because AdamW's update
// hardly depends on a factor.
TEST(L09_Training, ScalingDoesNotChangeWhatIsClipped) {
  RecordProperty("exercise", "09.4");
  for (const double max_norm : {0.01, 0.5, 100.0}) {
    double moved[2];  // the norm of the weights' change, without and with a loss scale
    for (const bool scaled : {false, true}) {
      Context context("cpu", 3);
      Transformer model(kModel);
      model.initialize(1);
      if (scaled) start_loss_scaling(context.device, 4096);
      Sgd optimizer(model.parameters);
      const auto weights = [&] {
        std::vector<double> all;
        for (const Parameter& p : model.parameters)
          for (const double w : to_host<double>(p.value)) all.push_back(w);
        return all;
      };
      const std::vector<double> before = weights();
      for (int step = 0; step < 3; ++step) {
        model.parameters.zero_grad();
        accumulate(model, small_batch(), {6});
        optimizer.clip_grad_norm(max_norm);
        optimizer.step(0.1);
      }
      const std::vector<double> after = weights();
      double squares = 0;
      for (size_t i = 0; i < after.size(); ++i) squares += std::pow(after[i] - before[i], 2);
      moved[scaled] = std::sqrt(squares);
    }
    EXPECT_NEAR(moved[1] / moved[0], 1, 1e-4)
        << "with max_norm " << max_norm << ", three updates change the weights by " << moved[0]
        << " without a loss scale, but by " << moved[1] << " with a loss scale of 4096";
  }
}

}  // namespace
}  // namespace gradus
