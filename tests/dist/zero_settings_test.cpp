// ZeRO with all that a step may have: several micro-batches, checkpointing, every optimizer, clipping.
#include "src/optim/adamw_8bit.h"
#include "src/optim/muon.h"
#include "tests/dist/layered_model.h"
#include "tests/dist/parallel_training.h"

namespace gradus {
namespace {

TEST(L18_ZeroSettings, WeightsThatStayFromForwardToBackward) {
  for (const int64_t ranks : {1, 2, 3, 4, 8}) {
    ShardedSetting set{.ranks = ranks, .batch = 24};
    set.model.layers = 2;
    expect_zero_trains(set, {{.keep_gathered = true},
                             {.unit = unit_per_block, .keep_gathered = true},
                             {.unit = unit_per_block, .overlap = true, .keep_gathered = true}});
  }
}

// Read in any order, a unit is fetched once.
TEST(L18_ZeroSettings, WhatStaysIsNotFetchedAgain) {
  run_cluster({.ranks = 2}, [](Comm& comm) {
    LayeredModel model(Allocate::Later);
    declare_five(model);
    Zero zero(comm, model.parameters,
              {.stage = 3, .unit = unit_per_layer, .overlap = true, .keep_gathered = true});
    for (Parameter& p : model.parameters) zero.assign(p, first_values(p));
    const int64_t before = comm.traffic().elements;
    const Evaluation evaluation;
    for (const size_t layer : {0, 2, 1, 3, 4, 0}) to_host<double>(model.linears[layer].weight.value);
    EXPECT_EQ(comm.traffic().elements - before, zero.numel() / 2);
  });
}

TEST(L18_ZeroSettings, MicroBatches) {
  for (const int64_t ranks : {2, 3})
    for (const int64_t k : {2, 3})
      expect_zero_trains({.ranks = ranks, .micro_batches = k, .steps = 2, .batch = ranks * k}, all_ways());
}

TEST(L18_ZeroSettings, EveryCheckpointing) {
  const std::vector<std::function<void(Transformer&)>> cuts{
      [](Transformer& m) {
        m.segments = {{1, Keep::Input}, {2, Keep::LessAttention}};
      },
      [](Transformer& m) {
        m.segments = {{1, Keep::Input}, {1, Keep::Input}, {1, Keep::Input}};
      },
      [](Transformer& m) {
        m.segments = {{3, Keep::Input}};
      },
      [](Transformer& m) { m.from_the_start = true; }};
  for (const auto& cut : cuts)
    expect_zero_trains({.ranks = 2, .micro_batches = 2, .steps = 2, .batch = 8, .prepare = cut}, all_ways());
}

TEST(L18_ZeroSettings, EveryOptimizerOfElements) {
  ShardedSetting set{.ranks = 3, .steps = 4, .batch = 12};
  expect_zero_trains(set, all_ways(), [](Parameters& p) { return std::make_unique<Sgd>(p); });
  expect_zero_trains(set, some_ways(), [](Parameters& p) {
    return std::make_unique<Sgd>(p, SgdArgs{.momentum = 0.9f, .weight_decay = 0.1f});
  });
}

// Of 36 channels a block's matrices have 3888 to 5184 elements, so some have codes, and are split over ranks.
TEST(L18_ZeroSettings, StatesOfEightBits) {
  for (const int64_t ranks : {2, 3}) {
    ShardedSetting set{.ranks = ranks, .steps = 3, .batch = 6};
    set.model.layers = 2, set.model.heads = 3, set.model.channels = 36;
    expect_zero_trains(set, some_ways(kStateBlock),
                       [](Parameters& p) { return std::make_unique<AdamW8bit>(p); });
  }
}

TEST(L18_ZeroSettings, EveryAlignment) {
  for (const int64_t align : {2, 7, 64, 1000})
    expect_zero_trains({.ranks = 4, .steps = 2, .batch = 8}, some_ways(align));
}

// They update whole matrices, and of stage 0 every rank has them.
TEST(L18_ZeroSettings, OptimizersOfMatricesAtStageZero) {
  const std::vector<ZeroArgs> ways{{.stage = 0}, {.stage = 0, .unit = unit_per_block, .overlap = true}};
  ShardedSetting set{.ranks = 3, .micro_batches = 2, .steps = 3, .batch = 12};
  expect_zero_trains(set, ways, [](Parameters& p) { return std::make_unique<Adafactor>(p); });
  expect_zero_trains(set, ways, [](Parameters& p) { return std::make_unique<Muon>(p); });
}

TEST(L18_ZeroSettings, OnTheEmulatedGpu) {
  ShardedSetting set{.ranks = 3, .micro_batches = 2, .steps = 2, .batch = 6, .device = "emu"};
  set.model.layers = 2, set.model.context = 4;
  expect_zero_trains(set, some_ways());
}

}  // namespace
}  // namespace gradus
