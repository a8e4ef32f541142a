// Training with a whole model on every rank, and what the tests of all strategies ask of their ends.
#pragma once
#include <map>

#include "src/dist/data_parallel.h"
#include "tests/dist/sharded_training.h"

namespace gradus {

struct BucketSetting {
  int64_t bytes = 0;  // of a bucket; 0: sum_gradients
  bool overlap = false;
  std::string text() const {
    return (bytes ? "buckets of " + std::to_string(bytes) : "no buckets") + (overlap ? ", overlapped" : "");
  }
};

// What a rank does that has the whole model; `inspect` is called with its end. No buckets: nullptr.
inline void train_with_sums(const ShardedSetting& set, Comm& comm, const BucketSetting& how,
                            const std::function<void(Transformer&, GradientBuckets*)>& inspect,
                            const MakeOptimizer& make = make_adamw) {
  Transformer model(set.model);
  set.prepare(model);
  model.initialize(1);
  const auto optimizer = make(model.parameters);
  std::unique_ptr<GradientBuckets> buckets;
  if (how.bytes) buckets = std::make_unique<GradientBuckets>(comm, model.parameters, how.bytes);
  for (int64_t step = 0; step < set.steps; ++step) {
    model.parameters.zero_grad();
    for (int64_t micro = 0; micro < set.micro_batches; ++micro) {
      if (how.overlap && micro == set.micro_batches - 1) buckets->sum_during_backward();
      Tape tape;
      tape.backward(share_of_loss(set, model, step, comm.rank(), micro));
    }
    if (buckets)
      buckets->sum();
    else
      sum_gradients(comm, model.parameters);
    if (set.max_norm >= 0) optimizer->clip_grad_norm(set.max_norm);
    set.before_update(step, *optimizer);
    optimizer->step(1e-2);
  }
  inspect(model, buckets.get());
}

inline void expect_weights(Transformer& model, const Weights& expected, const std::string& what) {
  const Weights got = weights_of(model);
  ASSERT_EQ(got.size(), expected.size());
  size_t i = 0;
  for (const Parameter& p : model.parameters) {
    EXPECT_EQ(got[i], expected[i]) << what << ", " << p.name;
    ++i;
  }
}

inline ClusterArgs cluster_of(const ShardedSetting& set) {
  return {.ranks = set.ranks, .device = set.device, .seed = 3};
}
inline std::string text_of(const ShardedSetting& set) {
  return "N = " + std::to_string(set.ranks) + ", k = " + std::to_string(set.micro_batches) + " on " +
         set.device;
}
inline std::string text_of(const ZeroArgs& args) {
  return "stage " + std::to_string(args.stage) + (args.overlap ? ", overlapped" : "") +
         (args.keep_gathered ? ", kept" : "") + ", align " + std::to_string(args.align);
}

// With what they keep from step to step, and what the optimizer of `make` updates.
inline void expect_sums_train_as(const Weights& expected, const ShardedSetting& set, const BucketSetting& how,
                                 const MakeOptimizer& make = make_adamw) {
  run_cluster(cluster_of(set), [&](Comm& comm) {
    train_with_sums(
        set, comm, how,
        [&](Transformer& model, GradientBuckets*) {
          expect_weights(model, expected,
                         how.text() + ", " + text_of(set) + ", rank " + std::to_string(comm.rank()));
        },
        make);
  });
}
inline void expect_zero_trains_as(const Weights& expected, const ShardedSetting& set, const ZeroArgs& args,
                                  const MakeOptimizer& make = make_adamw) {
  run_cluster(cluster_of(set), [&](Comm& comm) {
    train_with_zero(
        set, comm, args,
        [&](Transformer& model, Zero&, Optimizer&) {
          expect_weights(model, expected,
                         text_of(args) + ", " + text_of(set) + ", rank " + std::to_string(comm.rank()));
        },
        make);
  });
}
// Every stage with and without overlap, in one unit and in one a block, and with weights that stay.
inline std::vector<ZeroArgs> all_ways(int64_t align = 1) {
  std::vector<ZeroArgs> all;
  for (const int stage : {0, 1, 2, 3})
    for (const bool overlap : {false, true})
      for (const bool blocks : {false, true})
        for (const bool keep : {false, true}) {
          if (keep && stage != 3) continue;
          all.push_back({.stage = stage, .overlap = overlap, .keep_gathered = keep, .align = align});
          if (blocks) all.back().unit = unit_per_block;
        }
  return all;
}
// One of each stage, all different.
inline std::vector<ZeroArgs> some_ways(int64_t align = 1) {
  return {{.stage = 0, .align = align},
          {.stage = 1, .unit = unit_per_block, .align = align},
          {.stage = 2, .unit = unit_per_block, .overlap = true, .align = align},
          {.stage = 3, .unit = unit_per_block, .overlap = true, .align = align}};
}

inline void expect_zero_trains(const ShardedSetting& set, const std::vector<ZeroArgs>& ways,
                               const MakeOptimizer& make = make_adamw) {
  const Weights by_step = train_on_one_rank(set, Summed::EachStep, make),
                by_micro =
                    set.micro_batches == 1 ? by_step : train_on_one_rank(set, Summed::EachMicroBatch, make);
  for (const ZeroArgs& args : ways)
    expect_zero_trains_as(args.stage >= 2 ? by_micro : by_step, set, args, make);
}

inline Summed summed_by(int stage) { return stage >= 2 ? Summed::EachMicroBatch : Summed::EachStep; }

// What the ranks keep of each parameter, one part after the other in rank order; of stage 0 all have all.
using KeptParts = std::map<std::string, std::vector<double>>;
inline void add_kept(KeptParts& to, const Comm& comm, const Zero& zero, int stage) {
  if (stage == 0 && comm.rank() > 0) return;
  for (const Parameter& p : zero.shards) {
    const std::vector<double> values = to_host<double>(p.kept());
    to[p.name].insert(to[p.name].end(), values.begin(), values.end());
  }
}

}  // namespace gradus
