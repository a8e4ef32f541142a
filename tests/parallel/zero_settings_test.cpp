// Training with ZeRO is bitwise equal to training on one rank, with everything that a step may contain; in 16
// bits, too, because sums over ranks are made in fp32 and rounded once, and the reference does the same. And
// overflows that only one rank may see.
#include "src/optim/adamw_8bit.h"
#include "src/optim/muon.h"
#include "tests/parallel/layered_model.h"
#include "tests/parallel/parallel_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L18_ZeroSettings, TrainAsOneRankDoes) { expect_all_train(all_settings(), ways_of(all_ways())); }
TEST(L18_ZeroSettings, OnTheEmulatedGpu) { expect_all_train(settings_on_emu(), ways_of(some_ways())); }

// With 36 channels a block's matrices have 3888 to 5184 elements, so some have codes that are split over
// ranks.
TEST(L18_ZeroSettings, AlignedPartsAndStatesOfEightBits) {
  for (const int64_t align : {2, 7, 64, 1000})
    expect_trains({.name = "aligned", .ranks = 4, .steps = 2, .batch = 8}, ways_of(some_ways(align)));
  for (const int64_t ranks : {2, 3}) {
    ShardedSetting set{.ranks = ranks, .steps = 3, .batch = 6, .make = optimizer_of<AdamW8bit>()};
    set.model.layers = 2, set.model.heads = 3, set.model.channels = 36;
    expect_trains(set, ways_of(some_ways(kStateBlock)));
  }
}

// These optimizers update whole matrices, which every rank has in stage 0.
TEST(L18_ZeroSettings, OptimizersOfMatricesAtStageZero) {
  const std::vector<ZeroArgs> ways{{.stage = 0}, {.stage = 0, .unit = unit_per_block, .overlap = true}};
  for (const MakeOptimizer& make : {optimizer_of<Adafactor>(), optimizer_of<Muon>()})
    expect_trains({.ranks = 3, .micro_batches = 2, .steps = 3, .batch = 12, .make = make}, ways_of(ways));
}

// Whatever the order of reads, a unit is gathered once.
TEST(L18_ZeroSettings, WhatStaysIsNotFetchedAgain) {
  run_cluster({.ranks = 2}, [](Comm& comm) {
    const ShardedLayers sharded(comm,
                                {.stage = 3, .unit = unit_per_layer, .overlap = true, .keep_gathered = true});
    const int64_t before = comm.sent().elements;
    const Evaluation evaluation;
    for (const size_t layer : {0, 2, 1, 3, 4, 0}) to_host<double>(sharded.model.linears[layer].weight.value);
    EXPECT_EQ(comm.sent().elements - before, sharded.zero->numel() / 2);
  });
}

// An overflow of only one rank, in only one of its micro-batches.
TEST(L18_ZeroOverflow, OfOneRankIsSkippedByAll) {
  for (const char* recipe : {"mixed-fp16", "zero"})
    for (const int64_t who : {0, 2}) {
      ShardedSetting set = in_precision(recipe, 3, 2);
      set.bend = [&](const Tensor& loss, int64_t step, int64_t rank) {
        return step == 1 && rank == who ? scale(loss, 3e38) : loss;
      };
      const Ended end = end_on_one_rank(set, Summed::EachStep);
      EXPECT_EQ(end.updates, set.steps - 1);
      EXPECT_EQ(end.scalars.loss_scale, 1024);  // halved once, doubled once
      expect_trains(set, ways_of(some_ways()));
    }
}

// An infinite element is in the part of only one rank, and comes from one rank.
TEST(L18_ZeroOverflow, InOnePartIsSkippedByAll) {
  for (const int64_t from : {0, 1})
    for (const size_t where : {0, 7})
      for (const int stage : {0, 1, 2, 3})
        run_cluster({.ranks = 2}, [&](Comm& comm) {
          Parameters model(Allocate::Later);
          Parameter& p = model.add("p", {8}, {});
          Zero zero(comm, model, {.stage = stage});
          zero.assign(p, std::vector<double>(8, 1));
          AdamW optimizer(zero.shards);
          start_loss_scaling(current().device, 8);
          for (const float bad : {INFINITY, -INFINITY, NAN, 0.5f}) {
            zero.model().zero_grad();
            std::vector<float> dy(8, 8);
            if (comm.rank() == from) dy[where] = bad;
            Tape tape;
            const Tensor y = scale(p.value, 1);
            zero.end_forward();
            tape.backward(y, from_host(current().device, dy, {8}, DType::F32, Kind::Data, "dy"));
            zero.end_backward();
            optimizer.clip_grad_norm(0);
            optimizer.step(0.5);
            const double after = bad == 0.5f ? 0.5 : 1;
            for (const double value : to_host<double>(p.value)) EXPECT_NEAR(value, after, 1e-6) << stage;
          }
          current().end_attempt();
          EXPECT_EQ(current().device.scalars().loss_scale, 1) << stage;
          EXPECT_EQ(optimizer.scalars().updates, 1) << stage;
        });
}

// ---- clipping by the norm of sharded gradients ----

// Sums of squares are added in a different order, in fp64, so before rounding the norms differ relatively by
// less than 1e-12: the factors are equal or neighbours. Later the weights differ, too.
struct Clipped {
  float norm, factor;
};
TEST(L18_ZeroClipping, TheFactorIsThatOfOneRank) {
  for (const double most : {0.0, 0.05, 1e3})
    for (const int64_t ranks : {1, 2, 3}) {
      ShardedSetting set{.ranks = ranks, .micro_batches = 2, .steps = 1, .batch = 12, .max_norm = most};
      Clipped clipped{};
      set.before_update = [&](int64_t, Optimizer& optimizer) {
        const UpdateScalars s = optimizer.scalars();
        clipped = {s.grad_norm, s.clip_factor};
      };
      train_on_one_rank(set, Summed::EachStep);
      const Clipped by_step = clipped;
      train_on_one_rank(set, Summed::EachMicroBatch);
      const Clipped by_micro = clipped;
      for (const ZeroArgs& args : all_ways()) {
        const Clipped expected = args.stage >= 2 ? by_micro : by_step;
        EXPECT_EQ(expected.factor < 1, most == 0.05);
        std::vector<float> factors;  // by rank
        ShardedSetting sharded = set;
        sharded.before_update = [&](int64_t step, Optimizer& o) {
          set.before_update(step, o);
          const auto near = [](float a, float b) { return std::abs(a - b) <= std::nextafter(a, 2 * a) - a; };
          EXPECT_TRUE(near(expected.norm, clipped.norm)) << text_of(args) << " " << clipped.norm;
          EXPECT_TRUE(near(expected.factor, clipped.factor)) << text_of(args) << " " << clipped.factor;
          EXPECT_EQ(clipped.factor < 1, most == 0.05);
          factors.push_back(clipped.factor);
        };
        run_cluster(cluster_of(sharded), [&](Comm& comm) {
          train_with_zero(sharded, comm, args, [](Transformer&, Zero&, Optimizer&) {});
        });
        EXPECT_EQ(factors, std::vector<float>(size_t(ranks), clipped.factor)) << "ranks must stay equal";
      }
    }
}

// After zero_grad() there are no gradients to clip, and none for a step, until a backward pass.
TEST(L18_ZeroClipping, WithoutABackwardPassItIsRefused) {
  for (ZeroArgs args : all_ways()) {
    args.unit = unit_per_layer;
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      layered_with_zero({.declare = declare_five, .steps = 1}, comm, args, [&](LayeredModel&, Zero& zero) {
        zero.model().zero_grad();
        for (const Parameter& p : zero.shards)
          EXPECT_TRUE(!p.leaf.written) << text_of(args) << ", " << p.name;
        Sgd optimizer(zero.shards);
        const std::string said = refusal([&] { optimizer.clip_grad_norm(1); });
        EXPECT_NE(said.find("gradient"), std::string::npos) << text_of(args) << ": " << said;
      });
    });
  }
}

}  // namespace
}  // namespace gradus
