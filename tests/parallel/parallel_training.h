// The settings that ranks train in, with sums of whole gradients or with ZeRO, and the checks of their
// results.
#pragma once
#include <map>

#include "src/parallel/data_parallel.h"
#include "tests/parallel/sharded_training.h"

namespace gradus {

struct BucketSetting {
  int64_t bytes = 0;  // per bucket; 0: sum_gradients
  bool overlap = false;
};

// The training of a rank with the whole model; calls `inspect` with the final state. No buckets: nullptr.
inline void train_with_sums(const ShardedSetting& set, Comm& comm, const BucketSetting& how,
                            const std::function<void(Transformer&, GradientBuckets*, Optimizer&)>& inspect) {
  Transformer model(set.model);
  set.prepare(model);
  model.initialize(1);
  const auto optimizer = set.make(model.parameters);
  std::unique_ptr<GradientBuckets> buckets;
  if (how.bytes) buckets = std::make_unique<GradientBuckets>(comm, model.parameters, how.bytes);
  for (int64_t step = 0; step < set.steps; ++step) {
    model.parameters.zero_grad();
    for (int64_t micro = 0; micro < set.micro_batches; ++micro) {
      if (how.overlap && micro == set.micro_batches - 1) buckets->sum_during_backward();
      Tape tape;
      tape.backward(share_of_loss(set, model, step, comm.rank(), micro));
    }
    buckets ? buckets->sum() : sum_gradients(comm, model.parameters);
    if (set.max_norm >= 0) optimizer->clip_grad_norm(set.max_norm);
    set.before_update(step, *optimizer);
    optimizer->step(1e-2);
  }
  inspect(model, buckets.get(), *optimizer);
}

inline ClusterArgs cluster_of(const ShardedSetting& set) {
  return {.ranks = set.ranks, .device = set.device, .seed = 3};
}
inline std::string text_of(const ShardedSetting& set) {
  return set.name + ", N = " + std::to_string(set.ranks) + ", k = " + std::to_string(set.micro_batches) +
         " on " + set.device;
}
inline std::string text_of(const BucketSetting& how) {
  return (how.bytes ? "buckets of " + std::to_string(how.bytes) : "no buckets") +
         (how.overlap ? ", overlapped" : "");
}
inline std::string text_of(const ZeroArgs& args) {
  return "stage " + std::to_string(args.stage) + (args.overlap ? ", overlapped" : "") +
         (args.keep_gathered ? ", kept" : "") + ", align " + std::to_string(args.align);
}

// ---- methods by which ranks divide a step ----

struct Way {
  std::string name;
  Summed summed;  // when gradients are summed over the ranks
  bool whole;     // every rank keeps all weights, gradients and states
  // Trains, then calls `inspect` with the model, the parameters that the rank keeps, and their optimizer.
  using Inspect = std::function<void(Transformer&, Parameters&, Optimizer&)>;
  std::function<void(const ShardedSetting&, Comm&, const Inspect&)> train;
};

inline Way way_of(const BucketSetting& how) {
  return {text_of(how), Summed::EachStep, true,
          [how](const ShardedSetting& set, Comm& comm, const Way::Inspect& inspect) {
            const auto end = [&](Transformer& m, GradientBuckets*, Optimizer& o) {
              inspect(m, m.parameters, o);
            };
            train_with_sums(set, comm, how, end);
          }};
}
inline Way way_of(const ZeroArgs& args) {
  return {text_of(args), args.stage >= 2 ? Summed::EachMicroBatch : Summed::EachStep, args.stage == 0,
          [args](const ShardedSetting& set, Comm& comm, const Way::Inspect& inspect) {
            const auto end = [&](Transformer& m, Zero& zero, Optimizer& o) { inspect(m, zero.shards, o); };
            train_with_zero(set, comm, args, end);
          }};
}
template <class Setting>
std::vector<Way> ways_of(const std::vector<Setting>& settings) {
  std::vector<Way> ways;
  for (const Setting& s : settings) ways.push_back(way_of(s));
  return ways;
}

// Sizes for the small model: a bucket is smaller than any parameter, holds some parameters, or all.
inline std::vector<BucketSetting> all_buckets() {
  return {{}, {4}, {4, true}, {3000}, {3000, true}, {1 << 20}, {1 << 20, true}};
}
// Every stage with and without overlap, with one unit and one unit per block, and with weights that stay
// gathered.
inline std::vector<ZeroArgs> all_ways() {
  std::vector<ZeroArgs> all;
  for (const int stage : {0, 1, 2, 3})
    for (const bool overlap : {false, true})
      for (const bool blocks : {false, true})
        for (const bool keep : {false, true}) {
          if (keep && stage != 3) continue;
          all.push_back({.stage = stage, .overlap = overlap, .keep_gathered = keep});
          if (blocks) all.back().unit = unit_per_block;
        }
  return all;
}
// One setting per stage, all different.
inline std::vector<ZeroArgs> some_ways(int64_t align = 1) {
  return {{.stage = 0, .align = align},
          {.stage = 1, .unit = unit_per_block, .align = align},
          {.stage = 2, .unit = unit_per_block, .overlap = true, .align = align},
          {.stage = 3, .unit = unit_per_block, .overlap = true, .align = align}};
}

// ---- settings ----

// Ways of recomputing a model of three blocks.
inline std::vector<std::function<void(Transformer&)>> checkpointings() {
  const auto segments = [](std::vector<BlockSegment> all) {
    return [all = std::move(all)](Transformer& m) { m.segments = all; };
  };
  return {segments({{1, Keep::Input}, {2, Keep::LessAttention}}),
          segments({{1, Keep::Input}, {1, Keep::Input}, {1, Keep::Input}}), segments({{3, Keep::Input}}),
          [](Transformer& m) { m.from_the_start = true; }};
}

// Trains in `recipe`, with loss scaling where it is needed. No limit of the norm: clip_grad_norm() only looks
// for overflows.
inline ShardedSetting in_precision(const char* recipe, int64_t ranks, int64_t k) {
  ShardedSetting set{.name = recipe, .ranks = ranks, .micro_batches = k, .steps = 4};
  set.batch = 2 * ranks * k, set.max_norm = 0;
  set.model.layers = 2, set.model.precision = precision_recipe(recipe);
  if (set.name != "mixed") set.prepare = [](Transformer&) { start_loss_scaling(current().device, 1024, 2); };
  return set;
}

// Settings in which every method must train like one rank. Some limits of the norm are not reached, so that
// the order in which squares are added does not matter.
inline std::vector<ShardedSetting> all_settings() {
  const SgdArgs momentum{.momentum = 0.9f, .weight_decay = 0.1f};
  std::vector<ShardedSetting> all{
      {.name = "SGD", .ranks = 3, .steps = 4, .batch = 12, .make = optimizer_of<Sgd>()},
      {.name = "momentum", .ranks = 3, .steps = 4, .batch = 12, .make = optimizer_of<Sgd>(momentum)},
      {.name = "a maximum that is not reached", .ranks = 3, .steps = 4, .batch = 12, .max_norm = 1e3}};
  for (const int64_t ranks : {1, 2, 3, 4, 8}) all.push_back({.name = "any number of ranks", .ranks = ranks});
  for (const int64_t ranks : {2, 3})
    for (const int64_t k : {2, 3})
      all.push_back({.ranks = ranks, .micro_batches = k, .steps = 2, .batch = 2 * ranks * k});
  for (const auto& cut : checkpointings())
    for (const int64_t k : {1, 2})
      all.push_back({.name = "checkpointing", .micro_batches = k, .steps = 2, .batch = 8, .prepare = cut});
  for (const char* recipe : {"fp32", "mixed", "mixed-fp16", "zero", "half"})
    for (const auto& [ranks, k] : {std::pair(2, 1), {3, 2}}) all.push_back(in_precision(recipe, ranks, k));
  return all;
}
inline std::vector<ShardedSetting> settings_on_emu() {
  std::vector<ShardedSetting> all{{.ranks = 3, .micro_batches = 2, .batch = 6}, in_precision("zero", 2, 2)};
  for (ShardedSetting& set : all)
    set.device = "emu", set.steps = 2, set.model.layers = 2, set.model.context = 4;
  return all;
}

// ---- the final state of the ranks ----

struct Ended {
  Weights weights, kept;  // the weights that compute, and the kept ones: master copies if there are any
  StepScalars scalars = {};
  int64_t updates = 0;
};
inline Ended end_on_one_rank(const ShardedSetting& set, Summed summed) {
  Ended end;
  end.weights = train_on_one_rank(set, summed, [&](Transformer& m, Optimizer& o) {
    for (const Parameter& p : m.parameters) end.kept.push_back(to_host<double>(p.kept()));
    current().end_attempt();
    end.scalars = current().device.scalars(), end.updates = o.scalars().updates;
  });
  EXPECT_GT(end.updates, 0);
  return end;
}

// Checks that all ranks end in this state, bitwise; the parts that they keep are consecutive in rank order.
inline void expect_end(const ShardedSetting& set, const Way& way, const Ended& expected) {
  const std::string what = text_of(set) + ", " + way.name;
  std::map<std::string, std::vector<double>> kept;
  run_cluster(cluster_of(set), [&](Comm& comm) {
    const auto inspect = [&](Transformer& model, Parameters& own, Optimizer& optimizer) {
      expect_weights(model.parameters, expected.weights, what + ", rank " + std::to_string(comm.rank()));
      current().end_attempt();
      const StepScalars s = current().device.scalars();
      EXPECT_EQ(s.loss_scale, expected.scalars.loss_scale) << what;
      EXPECT_EQ(s.good_updates, expected.scalars.good_updates) << what;
      EXPECT_EQ(s.step, expected.scalars.step) << what;
      EXPECT_EQ(optimizer.scalars().updates, expected.updates) << what;
      for (int64_t r = 0; r < comm.rank(); ++r) comm.barrier();  // it is this rank's turn
      if (way.whole) kept.clear();
      for (const Parameter& p : own)
        for (const double x : to_host<double>(p.kept())) kept[p.name].push_back(x);
      const bool is_all = way.whole || comm.rank() + 1 == comm.size();
      for (size_t i = 0; const Parameter& p : model.parameters)
        EXPECT_TRUE(!is_all || kept[p.name] == expected.kept[i++]) << what << ", kept weights of " << p.name;
      for (int64_t r = comm.rank(); r < comm.size(); ++r) comm.barrier();
    };
    way.train(set, comm, inspect);
  });
}

inline void expect_trains(const ShardedSetting& set, const std::vector<Way>& ways) {
  const Ended by_step = end_on_one_rank(set, Summed::EachStep),
              by_micro = set.micro_batches == 1 ? by_step : end_on_one_rank(set, Summed::EachMicroBatch);
  for (const Way& way : ways) expect_end(set, way, way.summed == Summed::EachStep ? by_step : by_micro);
}
inline void expect_all_train(const std::vector<ShardedSetting>& settings, const std::vector<Way>& ways) {
  for (const ShardedSetting& set : settings)
    if (!testing::Test::HasFailure()) expect_trains(set, ways);
}

// ---- three parameters of the same size, whose gradients each consist of one number ----

inline std::vector<Parameter*> add_three(Parameters& parameters) {
  std::vector<Parameter*> all;
  for (const char* name : {"a", "b", "c"}) all.push_back(&parameters.add(name, {4}, {}));
  return all;
}
inline std::vector<Parameter*> with_values(const std::vector<Parameter*>& all) {
  for (Parameter* p : all) p->assign({1, 2, 3, 4});
  return all;
}
// One backward pass through a sum of terms times factors: the last term's gradient is final first.
inline void pass(const std::vector<Parameter*>& terms, const std::vector<double>& factors = {1, 1, 1}) {
  Tape tape;
  Tensor y = scale(terms[0]->value, factors[0]);
  for (size_t i = 1; i < terms.size(); ++i) y = add(y, scale(terms[i]->value, factors[i]));
  const std::vector<float> ones(size_t(y.numel()), 1);
  tape.backward(y, from_host(current().device, ones, y.shape(), DType::F32, Kind::Data, "ones"));
}

}  // namespace gradus
