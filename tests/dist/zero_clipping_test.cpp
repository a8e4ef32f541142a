// Clipping by the norm of gradients of which each rank has a part.
#include "tests/dist/layered_model.h"
#include "tests/dist/parallel_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// Sums of squares are added in another order, in fp64, so before they are rounded the norms differ by less
// than 1e-12 of themselves: the factors are neighbours, if not equal. Later the weights differ, too.
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
        int64_t calls = 0;
        ShardedSetting sharded = set;
        sharded.before_update = [&](int64_t step, Optimizer& o) {
          set.before_update(step, o);
          const auto near = [](float a, float b) { return std::abs(a - b) <= std::nextafter(a, 2 * a) - a; };
          EXPECT_TRUE(near(expected.norm, clipped.norm)) << text_of(args) << " " << clipped.norm;
          EXPECT_TRUE(near(expected.factor, clipped.factor)) << text_of(args) << " " << clipped.factor;
          EXPECT_EQ(clipped.factor < 1, most == 0.05);
          ++calls;
        };
        run_cluster(cluster_of(sharded), [&](Comm& comm) {
          train_with_zero(sharded, comm, args, [](Transformer&, Zero&, Optimizer&) {});
        });
        EXPECT_EQ(calls, ranks);
      }
    }
}

// After zero_grad() there is nothing to clip, and nothing to step with, until a backward pass.
TEST(L18_ZeroClipping, WithoutABackwardPassItIsRefused) {
  for (ZeroArgs args : all_ways()) {
    args.unit = unit_per_layer;
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      layered_with_zero({.declare = declare_five, .steps = 1}, comm, args, [&](LayeredModel&, Zero& zero) {
        zero.model().zero_grad();
        for (const Parameter& p : zero.shards) EXPECT_TRUE(p.leaf.empty) << text_of(args) << ", " << p.name;
        Sgd optimizer(zero.shards);
        const std::string said = refusal([&] { optimizer.clip_grad_norm(1); });
        EXPECT_NE(said.find("gradient"), std::string::npos) << text_of(args) << ": " << said;
      });
    });
  }
}

// A maximum that is not reached changes nothing; one that is changes every weight, on all ranks alike.
TEST(L18_ZeroClipping, AMaximumThatIsNotReachedChangesNothing) {
  expect_zero_trains({.ranks = 3, .steps = 4, .batch = 12, .max_norm = 1e3}, some_ways());
}
TEST(L18_ZeroClipping, AllRanksStayEqual) {
  const ShardedSetting set{.ranks = 3, .steps = 6, .batch = 12, .max_norm = 0.05};
  const Weights one =
      train_on_one_rank(set, Summed::EachStep, [](Parameters& p) { return std::make_unique<Sgd>(p); });
  for (const ZeroArgs& args : some_ways()) {
    Weights first;
    run_cluster(cluster_of(set), [&](Comm& comm) {
      train_with_zero(
          set, comm, args,
          [&](Transformer& model, Zero&, Optimizer&) {
            const Weights mine = weights_of(model);  // all take part
            if (first.empty()) first = mine;
            expect_weights(model, first, text_of(args));
          },
          [](Parameters& p) { return std::make_unique<Sgd>(p); });
    });
    for (size_t i = 0; i < one.size(); ++i)  // 6 steps of 0.01 times 0.05 at most, and roundings
      for (size_t j = 0; j < one[i].size(); ++j) EXPECT_NEAR(first[i][j], one[i][j], 1e-6) << text_of(args);
  }
}

}  // namespace
}  // namespace gradus
