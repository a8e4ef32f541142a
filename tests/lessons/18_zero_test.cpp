// Lesson 18: bytes and elements by stage; every stage trains in the same way.
#include <gtest/gtest.h>

#include "lessons/18_zero/by_hand.h"
#include "lessons/18_zero/step.h"
#include "src/optim/optimizer.h"
#include "tests/mistakes.h"
#include "tests/parallel/sharded_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

int64_t sum_of(const Usage& u) { return u.allocated(); }

TEST(L18_Formulas, BytesOfAKindAreShardedFromItsStageOn) {
  RecordProperty("exercise", "18.2");
  const Precision zero = precision_recipe("zero"), fp32 = {}, mixed = precision_recipe("mixed");
  // 1,000 parameters, padded to 1,008, on 4 ranks: 252 each.
  const auto bytes = [&](const Precision& t, int stage) { return predicted_bytes(t, stage, 1000, 1008, 4); };
  EXPECT_EQ(sum_of(bytes(zero, 0)), 2 * 1008 + 2 * 1008 + 4 * 1008 + 8 * 1000);
  EXPECT_EQ(sum_of(bytes(zero, 1)), 2 * 1008 + 2 * 1008 + 12 * 252);
  EXPECT_EQ(sum_of(bytes(zero, 2)), 2 * 1008 + 14 * 252);
  EXPECT_EQ(sum_of(bytes(zero, 3)), 16 * 252);
  const int64_t gradients = bytes(zero, 2)[Kind::Gradient], states = bytes(zero, 1)[Kind::Optimizer];
  EXPECT_EQ(gradients, 2 * 252) << usual_mistake(
      {{gradients == 2 * 1008, "in stage 2 a rank keeps only its shard of the gradients, not all of them"}});
  EXPECT_EQ(bytes(zero, 1)[Kind::Master], 4 * 252);
  EXPECT_EQ(states, 8 * 252) << usual_mistake(
      {{states == 4 * 252, "AdamW keeps two states of each parameter; only one is counted"}});
  EXPECT_EQ(sum_of(bytes(fp32, 0)), 4 * 1008 + 4 * 1008 + 8 * 1000);
  EXPECT_EQ(sum_of(bytes(fp32, 3)), 16 * 252);
  EXPECT_EQ(sum_of(bytes(mixed, 1)), 2 * 1008 + 4 * 1008 + 12 * 252);
  EXPECT_EQ(bytes(fp32, 3)[Kind::Master], 0);
  EXPECT_EQ(sum_of(bytes(precision_recipe("half"), 3)), 8 * 252) << "states of 2 bytes each";
  EXPECT_EQ(sum_of(predicted_bytes(zero, 1, 10, 10, 1)), 160) << "a single rank keeps everything";
}

TEST(L18_Formulas, ElementsThatARankSends) {
  RecordProperty("exercise", "18.1");
  const auto sent = [](int stage, int64_t k, bool keeps = false) {
    return predicted_sent({.stage = stage, .keep_gathered = keeps}, 1200, 4, k) / 900;  // Psi (N-1)/N
  };
  for (const int64_t k : {1, 2, 5}) {
    EXPECT_EQ(sent(0, k), 2);
    EXPECT_EQ(sent(1, k), 2);
    EXPECT_EQ(sent(2, k), k + 1);
    EXPECT_EQ(sent(3, k), 3 * k) << usual_mistake(
        {{sent(3, 5) == 2 * 5,
          "weights are dropped after the forward pass, so the backward pass gathers them a second time"},
         {sent(3, 5) == 2 + 5,
          "weights are gathered once per step here, but they are dropped in every micro-batch"}});
    EXPECT_EQ(sent(3, k, true), 2 * k);
    EXPECT_EQ(sent(2, k, true), k + 1) << "only stage 3 gathers weights in a pass";
    EXPECT_EQ(sent(1, k, true), 2);
  }
  EXPECT_EQ(predicted_sent({.stage = 3}, 1200, 1, 3), 0);
}

Weights trained(const ShardedSetting& set, const ZeroArgs& args) {
  Weights weights;
  run_cluster({.ranks = set.ranks, .seed = 3}, [&](Comm& comm) {
    train_with_zero(set, comm, args, [&](Transformer& model, Zero&, Optimizer&) {
      const Weights mine = weights_of(model);
      if (comm.rank() == set.ranks - 1) weights = mine;
    });
  });
  return weights;
}

TEST(L18_Stages, InStageOneEveryRankGetsTheOthersWeights) {
  RecordProperty("exercise", "18.4");
  for (const int64_t ranks : {2, 3}) {
    const ShardedSetting set{.ranks = ranks, .steps = 3};
    const Weights expected = train_on_one_rank(set, Summed::EachStep),
                  start = train_on_one_rank({.ranks = ranks, .steps = 0}, Summed::EachStep),
                  got = trained(set, {.stage = 1, .unit = unit_per_block});
    EXPECT_EQ(got, expected) << usual_mistake(
        {{got[0][0] == start[0][0],
          "the last rank has the weights of rank 0's shard as they were before the first step"}});
    EXPECT_EQ(trained(set, {.stage = 1}), expected);
  }
}

TEST(L18_Stages, InStageThreeAUnitIsGatheredWhenItIsRead) {
  RecordProperty("exercise", "18.5");
  const ShardedSetting set{.ranks = 3, .steps = 3};
  const Weights expected = train_on_one_rank(set, Summed::EachMicroBatch);
  for (const bool overlap : {false, true})
    for (const bool keep : {false, true})
      EXPECT_EQ(trained(set, {.stage = 3, .unit = unit_per_block, .overlap = overlap, .keep_gathered = keep}),
                expected)
          << "overlap " << overlap << ", keep " << keep;
  EXPECT_EQ(trained(set, {.stage = 3}), expected);
}

TEST(L18_Stages, AtMostOneUnitAndTheRootAreGathered) {
  RecordProperty("exercise", "18.5");
  ZeroSetting set{
      .model = {.vocab = 31, .context = 8, .layers = 4, .heads = 2, .channels = 12}, .ranks = 2, .tokens = 8};
  constexpr int64_t kBlock = 12 * 12 * 12 + 13 * 12, kRoot = (31 + 8 + 2) * 12;  // of 12 channels
  const auto most = [&](const ZeroArgs& args) {
    set.zero = args;
    return zero_step(set).most_gathered;
  };
  const int64_t gathered = most({.unit = unit_per_block});
  EXPECT_EQ(gathered, 4 * (kBlock + kRoot)) << usual_mistake(
      {{gathered == 4 * (4 * kBlock + kRoot), "a block stays in memory when the next block is gathered"}});
  EXPECT_EQ(most({.unit = unit_per_block, .overlap = true}), 4 * (2 * kBlock + kRoot));
  EXPECT_EQ(most({.unit = unit_per_block, .keep_gathered = true}), 4 * (4 * kBlock + kRoot));
  EXPECT_EQ(most({}), 4 * (4 * kBlock + kRoot));
}

// One letter per time step: G all-gather, F forward, B backward, R reduce-scatter, - kept, . dropped.
TEST(L18_Stages, AUnitIsGatheredUsedAndDropped) {
  const auto expect = [](bool prefetch, bool keep, const std::vector<std::string>& units, int64_t bytes) {
    const UnitTimeline t = unit_timeline(prefetch, keep);
    EXPECT_EQ(t.units, units) << "prefetch " << prefetch << ", keep_gathered " << keep;
    EXPECT_EQ(t.most_gathered, bytes) << "the units have 16, 32 and 64 bytes";
  };
  expect(false, false, {"GF............GBBR", "..GF......GBBR....", "....GFGBBR........"}, 64);
  expect(true, false, {"GF......GBBR", ".GF..G-BBR..", "..GFGBBR...."}, 32 + 64);
  expect(true, true, {"GF------BBR", ".GF---BBR..", "..GFBBR...."}, 16 + 32 + 64);
}

TEST(L18_Stages, MicroBatchesAddUp) {
  RecordProperty("exercise", "18.6");
  const ShardedSetting set{.ranks = 2, .micro_batches = 3, .steps = 4};
  EXPECT_EQ(trained(set, {.stage = 2, .unit = unit_per_block}),
            train_on_one_rank(set, Summed::EachMicroBatch));
  EXPECT_EQ(trained(set, {.stage = 1, .unit = unit_per_block}), train_on_one_rank(set, Summed::EachStep));
}

// Rajbhandari et al. 2020, table 2: the largest model, in 10^9 parameters, whose states fit into 64 GPUs of
// 32 GB (10^9 bytes).
TEST(L18_Published, LargestModels) {
  RecordProperty("exercise", "18.2");
  constexpr int64_t kTenth = 100'000'000;
  const double printed[] = {2, 7.6, 14.4, 128};
  for (const int stage : {0, 1, 2, 3}) {
    const auto fits = [&](int64_t tenths) {
      const int64_t n = tenths * kTenth;
      return predicted_bytes(precision_recipe("zero"), stage, n, n, 64).allocated() <= 32'000'000'000;
    };
    const int64_t largest = std::llround(10 * printed[stage]);
    EXPECT_TRUE(fits(largest)) << "stage " << stage;
    EXPECT_FALSE(fits(largest + 1)) << "stage " << stage;
  }
}

// DeepSpeed's estimator prints 6.09 GB (2^30 bytes) for t5-3b in stage 3 on 8 GPUs: 2,851M parameters, 32M of
// them in the largest layer, gradients in fp32, 4 bytes per gathered element.
TEST(L18_Published, StatesOfT5OnEightGpus) {
  RecordProperty("exercise", "18.2");
  constexpr int64_t kParameters = 2'851'000'000, kLargestLayer = 32'000'000;
  const int64_t states = predicted_bytes(mixed(DType::F16), 3, kParameters, kParameters, 8).allocated();
  EXPECT_NEAR(double(states + 4 * kLargestLayer) / double(1 << 30), 6.09, 0.005);
}

}  // namespace
}  // namespace gradus
