// The training loop of data parallelism (lesson 17), used with ZeRO: it trains to the same weights, or an
// error says what is wrong.
#include "src/parallel/data_parallel.h"
#include "tests/fault_injection.h"
#include "tests/parallel/parallel_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// Except for the model and the optimizer's parameters, every line is lesson 17's.
TEST(L18_ZeroLoops, ALoopForWholeParametersTrainsTheSame) {
  const ShardedSetting set{.ranks = 3, .steps = 4, .batch = 12, .max_norm = 0.5};
  const Weights by_step = train_on_one_rank(set, Summed::EachStep);
  for (const ZeroArgs& args : all_ways())
    run_cluster(cluster_of(set), [&](Comm& comm) {
      ShardedTransformer sharded(set.model, comm, args);
      auto& [model, zero] = sharded;
      AdamW optimizer(zero.shards, {.weight_decay = 0.1f});
      for (int64_t step = 0; step < set.steps; ++step) {
        model.parameters.zero_grad();
        Tape tape;
        const Tensor loss = share_of_loss(set, model, step, comm.rank(), 0);
        tape.backward(loss);
        if (args.overlap) zero.end_backward();  // otherwise all sums have ended
        optimizer.clip_grad_norm(set.max_norm);
        optimizer.step(1e-2);
      }
      for (size_t i = 0; const std::vector<double>& w : weights_of(model)) {
        for (size_t k = 0; k < w.size(); ++k)  // the norm's squares are added in a different order
          ASSERT_NEAR(w[k], by_step[i][k], 1e-6) << text_of(args);
        ++i;
      }
    });
}

TEST(L18_ZeroLoops, WhatWouldTrainOtherWeightsIsRefused) {
  for (const ZeroArgs& args : all_ways())
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      const ShardedSetting set{.steps = 1, .batch = 4};
      ShardedTransformer sharded(set.model, comm, args);
      auto& [model, zero] = sharded;
      const auto refused = [&](const char* part, const std::function<void()>& f) {
        const std::string said = refusal(f);
        EXPECT_NE(said.find(part), std::string::npos) << text_of(args) << ": " << said;
      };
      refused("make it for this rank's shards", [&] { AdamW optimizer(model.parameters); });
      refused("Zero, which sums their gradients", [&] { sum_gradients(comm, model.parameters); });
      refused("Zero, which sums their gradients", [&] { GradientBuckets(comm, model.parameters, 1000); });
      refused("use zero_grad()", [&] { model.parameters.drop_grad(); });
      refused("use zero_grad()", [&] { zero.shards.drop_grad(); });
    });
}

// end_backward() waits for sums that have begun; without it there are no gradients for the step.
TEST(L18_ZeroLoops, WithoutEndBackwardAnOverlappedStepIsRefused) {
  for (const ZeroArgs& args : all_ways())
    if (args.overlap)
      run_cluster({.ranks = 2}, [&](Comm& comm) {
        const ShardedSetting set{.steps = 1, .batch = 4};
        ShardedTransformer sharded(set.model, comm, args);
        auto& [model, zero] = sharded;
        Sgd optimizer(zero.shards);
        model.parameters.zero_grad();
        Tape tape;
        tape.backward(share_of_loss(set, model, 0, comm.rank(), 0));
        const std::string said = refusal([&] { optimizer.step(0.1); });
        EXPECT_NE(said.find("has no gradient"), std::string::npos) << text_of(args) << ": " << said;
        model.parameters.zero_grad();  // drops what has begun
      });
}

// The n-th kernel call or allocation of rank 1 fails, or memory ends there: all ranks end, and a new model
// can train.
TEST(L18_ZeroLoops, AFaultOnOneRankEndsAllWithItsSentence) {
  const ShardedSetting set{.steps = 1, .batch = 4};
  const Weights expected = train_on_one_rank(set, Summed::EachStep);
  for (const ZeroArgs& args : some_ways())
    for (const auto what :
         {Faults::What::KernelThrows, Faults::What::MemoryEnds, Faults::What::AllocationFails}) {
      int64_t ended = 0;
      for (int64_t n = 1;; n += 11) {
        const auto train = [&](bool faulty) {
          run_cluster(cluster_of(set), [&](Comm& comm) {
            Device& device = current().device;
            struct Disarmed {  // runs before the rank's device is destroyed
              bool was_armed;
              ~Disarmed() {
                if (was_armed) Faults::disarm();
              }
            } const at_the_end{faulty && comm.rank() == 1};
            if (at_the_end.was_armed) Faults::arm(device, what, n);
            train_with_zero(set, comm, args, [&](Transformer& model, Zero&, Optimizer&) {
              if (!faulty) expect_weights(model.parameters, expected, text_of(args));
            });
          });
        };
        const std::string said = refusal([&] { train(true); });
        const bool fired = Faults::fired;
        train(false);
        if (!fired) break;
        if (said.empty()) continue;                     // there was enough memory for the rest
        EXPECT_EQ(said.substr(0, 5), "rank ") << said;  // the rank that comes last also adds up rank 1's data
        ++ended;
      }
      EXPECT_GT(ended, 2) << text_of(args);
    }
}

}  // namespace
}  // namespace gradus
