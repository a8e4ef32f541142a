// ZeRO trains as one rank would, to the bit, and sends what the formulas say.
#include "src/dist/zero.h"

#include "tests/dist/sharded_training.h"

namespace gradus {
namespace {

void expect_as_on_one_rank(const ShardedSetting& set, const ZeroArgs& args, const Weights& expected,
                           const std::string& what) {
  run_cluster({.ranks = set.ranks, .device = set.device, .seed = 3}, [&](Comm& comm) {
    train_with_zero(set, comm, args, [&](Transformer& model, Zero&, Optimizer&) {
      const Weights got = weights_of(model);
      size_t i = 0;
      for (const Parameter& p : model.parameters) {
        EXPECT_EQ(got[i], expected[i]) << what << ", rank " << comm.rank() << ", " << p.name;
        ++i;
      }
    });
  });
}

TEST(L18_Zero, EveryStageTrainsAsOneRankDoes) {
  for (const int64_t ranks : {1, 2, 3, 4, 8}) {
    ShardedSetting set{.ranks = ranks};
    set.model.layers = 2;
    const Weights expected = train_on_one_rank(set, Summed::EachStep);
    for (const int stage : {0, 1, 2, 3})
      for (const bool overlap : {false, true})
        for (const bool blocks : {false, true}) {
          ZeroArgs args{.stage = stage, .overlap = overlap};
          if (blocks) args.unit = unit_per_block;
          expect_as_on_one_rank(set, args, expected,
                                "stage " + std::to_string(stage) + ", N = " + std::to_string(ranks) +
                                    (overlap ? ", overlapped" : "") + (blocks ? ", a unit a block" : ""));
        }
  }
}

}  // namespace
}  // namespace gradus
