// Lesson 09: gradients and updates that 16 bits lose, and clipping with a loss scale.
#include <gtest/gtest.h>

#include <cmath>

#include "lessons/07_accumulation/ways.h"
#include "lessons/09_mixed_precision/underflow.h"
#include "src/optim/optimizer.h"
#include "tests/devices.h"
#include "tests/lessons/report_testing.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

TEST(L09_Underflow, ShareLost) {
  RecordProperty("exercise", "09.2");
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
  for (size_t at = 0; at < exact.size(); ++at) {
    EXPECT_EQ(std::abs(exact[at]) < 1e-9, at / 8 % 5 == 0) << at;
    EXPECT_NEAR(of_1e7[at], exact[at] * 3e-6, 1e-12);
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
  RecordProperty("exercise", "09.5");
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

// The norm of the gradient is clipped after it is divided by the scale. With SGD, because AdamW's update
// hardly depends on a factor.
TEST(L09_Training, ScalingDoesNotChangeWhatIsClipped) {
  RecordProperty("exercise", "09.8");
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
