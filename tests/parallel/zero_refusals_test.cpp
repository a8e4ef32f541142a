// What data parallelism and ZeRO reject, with messages that say what is wrong.
#include "src/optim/muon.h"
#include "tests/parallel/parallel_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

void expect_of_ranks(int64_t ranks, const std::string& part, const std::function<void(Comm&)>& body) {
  expect_refused(part, [&] { run_cluster({.ranks = ranks}, body); });
}
// `add` declares a model.
void expect_not_sharded(
    int64_t ranks, const std::string& part, const ZeroArgs& args, Allocate allocate = Allocate::Later,
    const std::function<void(Parameters&)>& add = [](Parameters& p) { add_three(p); }) {
  expect_of_ranks(ranks, part, [&](Comm& comm) {
    Parameters model(allocate);
    add(model);
    const Zero zero(comm, model, args);
  });
}

TEST(L18_ZeroRefusals, ModelsAndArgumentsThatCannotBe) {
  const auto frozen = [](Parameters& p) {
    add_three(p);
    p.set_trainable(p.find("b"), false);
  };
  const auto of_two_precisions = [](Parameters& p) {
    add_three(p);
    p.add("d", {4}, precision_recipe("mixed"));
  };
  const auto layer = [](Parameters& p) { p.add("a.weight", {6, 6}, {}), p.add("a.bias", {6}, {}); };
  for (const int stage : {0, 1, 2, 3}) {
    expect_not_sharded(2, "'b'", {.stage = stage}, Allocate::Later, frozen);
    expect_not_sharded(2, "Allocate::Later", {.stage = stage}, Allocate::Now);
  }
  expect_not_sharded(2, "'d'", {}, Allocate::Later, of_two_precisions);
  expect_not_sharded(2, "", {}, Allocate::Later, [](Parameters&) {});
  // An operation reads both, but only one unit is gathered at a time.
  const ZeroArgs each_alone{.unit = [](const Parameter& p) { return p.name; }};
  expect_not_sharded(2, "'a.bias' is in another unit than the rest of its layer", each_alone, Allocate::Later,
                     layer);
  for (const int stage : {4, -1}) expect_not_sharded(2, std::to_string(stage), {.stage = stage});
  for (const int64_t align : {0, -3}) expect_not_sharded(2, std::to_string(align), {.align = align});
}

// Too few or too many initial values, on every rank, also on one whose part would be among them.
TEST(L18_ZeroRefusals, FirstValuesOfAnotherNumber) {
  for (const int stage : {0, 1, 2, 3})
    for (const size_t n : {0, 3, 5})
      run_cluster({.ranks = 2}, [&](Comm& comm) {
        Parameters model(Allocate::Later);
        Parameter& p = *add_three(model)[0];
        Zero zero(comm, model, {.stage = stage, .unit = [](const Parameter& q) { return q.name; }});
        expect_refused(std::to_string(n), [&] { zero.assign(p, std::vector<double>(n, 1)); });
      });
}

// A rejected model has no memory, so reading its weights is an error.
TEST(L18_ZeroRefusals, AModelThatWasRefused) {
  for (const int stage : {0, 1, 2, 3})
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      Parameters model(Allocate::Later);
      const auto all = add_three(model);
      model.add("d", {4}, precision_recipe("mixed"));
      expect_refused("'d'", [&] { Zero(comm, model, {.stage = stage}); });
      for (const Parameter* p : all) expect_refused("has no memory", [&] { to_host<double>(p->value); });
    });
}

TEST(L18_ZeroRefusals, OptimizersOfMatricesOnShards) {
  for (const int stage : {1, 2, 3}) {
    for (const MakeOptimizer& make : {optimizer_of<Adafactor>(), optimizer_of<Muon>()})
      expect_of_ranks(2, "is a shard of a parameter [", [&](Comm& comm) {
        train_with_zero({.steps = 1, .batch = 2, .make = make}, comm, {.stage = stage},
                        [](Transformer&, Zero&, Optimizer&) {});
      });
  }
}

// `shard` is set also if a rank owns all of a parameter; in stage 0 there is none.
TEST(L18_ZeroShards, SayWhatTheyAreAPartOf) {
  for (const int stage : {0, 1, 2, 3})
    for (const int64_t align : {1, 4})
      run_cluster({.ranks = 2}, [&](Comm& comm) {
        Parameters model(Allocate::Later);
        model.add("a", {2, 3}, {}), model.add("b", {5}, {}), model.add("c", {1, 7}, {});
        const Zero zero(comm, model, {.stage = stage, .align = align});
        for (const Parameter& shard : zero.shards) {
          const Parameter& p = model.find(shard.name);
          ASSERT_EQ(shard.shard.has_value(), stage > 0) << shard.name << ", stage " << stage;
          if (stage > 0) {
            EXPECT_EQ(shard.shard->whole, p.leaf.shape) << shard.name;
            EXPECT_EQ(shard.shard->count, shard.value.numel()) << shard.name;
          }
          EXPECT_EQ(shard.decay, p.decay);
          EXPECT_EQ(shard.precision, p.precision);
          EXPECT_TRUE(shard.trainable());
          EXPECT_GT(shard.value.numel(), 0);
          EXPECT_LE(shard.value.numel(), p.leaf.shape.numel());
          if (stage == 0) {
            EXPECT_EQ(shard.value.shape(), p.leaf.shape);
          }
        }
      });
}

TEST(L18_ZeroRefusals, AParameterWithoutAGradientOnOneRank) {
  for (const int stage : {0, 1, 2, 3})
    for (const bool overlap : {false, true})
      expect_of_ranks(2, "rank 1: ", [&](Comm& comm) {
        Parameters model(Allocate::Later);
        std::vector<Parameter*> all = add_three(model);
        Zero zero(comm, model, {.stage = stage, .overlap = overlap});
        for (Parameter* p : all) zero.assign(*p, {1, 2, 3, 4});
        zero.model().zero_grad();
        if (comm.rank() == 1) all.erase(all.begin() + 1);
        pass(all);
        zero.end_backward();
      });
}
TEST(L17_Refusals, AParameterWithoutAGradientOnOneRank) {
  for (const int64_t bytes : {0, 20, 1000})
    for (const bool overlap : {false, true})
      expect_of_ranks(2, "rank 1: ", [&](Comm& comm) {
        Parameters model;
        std::vector<Parameter*> all = with_values(add_three(model));
        std::unique_ptr<GradientBuckets> buckets;
        if (bytes) buckets = std::make_unique<GradientBuckets>(comm, model, bytes);
        if (overlap && buckets) buckets->sum_during_backward();
        if (comm.rank() == 1) all.erase(all.begin() + 1);
        pass(all);
        buckets ? buckets->sum() : sum_gradients(comm, model);
      });
  expect_of_ranks(1, "'b'", [&](Comm& comm) {
    Parameters model;
    std::vector<Parameter*> all = with_values(add_three(model));
    pass({all[0], all[2]});
    sum_gradients(comm, model);
  });
}

TEST(L17_Refusals, BucketsWithoutTheirMemory) {
  for (const bool before : {false, true})
    expect_of_ranks(2, "drop_grad", [&](Comm& comm) {
      Parameters model;
      const std::vector<Parameter*> all = with_values(add_three(model));
      GradientBuckets buckets(comm, model, 20);
      if (before) model.drop_grad();
      pass(all);
      if (!before) model.drop_grad(), pass(all);
      buckets.sum();
    });
}

TEST(L17_Refusals, ASecondBackwardPassAfterSumsBegan) {
  expect_of_ranks(2, "backward", [&](Comm& comm) {
    Parameters model;
    const std::vector<Parameter*> all = with_values(add_three(model));
    GradientBuckets buckets(comm, model, 20);
    buckets.sum_during_backward();
    pass(all);
    pass(all);
    buckets.sum();
  });
}

TEST(L17_Refusals, OtherPrecisionsInOneBucketAndSizesThatCannotBe) {
  expect_of_ranks(2, "'half'", [&](Comm& comm) {
    Parameters model;
    model.add("half", {4}, precision_recipe("half"));
    model.add("a", {4}, {});
    const GradientBuckets buckets(comm, model, 1000);
  });
  for (const int64_t bytes : {0, -1})
    expect_of_ranks(2, std::to_string(bytes), [&](Comm& comm) {
      Parameters model;
      add_three(model);
      const GradientBuckets buckets(comm, model, bytes);
    });
}

// Gradients of frozen parameters are not summed.
TEST(L17_Refusals, FrozenOnesAreLeftOut) {
  for (const int64_t bytes : {0, 20, 1000})
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      Parameters model;
      const std::vector<Parameter*> all = with_values(add_three(model));
      model.set_trainable(*all[1], false);
      std::unique_ptr<GradientBuckets> buckets;
      if (bytes) buckets = std::make_unique<GradientBuckets>(comm, model, bytes);
      pass({all[0], all[2]});
      buckets ? buckets->sum() : sum_gradients(comm, model);
      EXPECT_FALSE(all[1]->leaf.grad.defined());
      for (const size_t i : {0, 2}) EXPECT_EQ(to_host<double>(all[i]->leaf.grad), std::vector<double>(4, 2));
      if (buckets) {
        EXPECT_EQ(buckets->numel(), 8);
      }
    });
}

TEST(L18_Later, AParameterThatNobodyHasGivenMemory) {
  const Context context("cpu", 1);
  Parameters model(Allocate::Later);
  Parameter& p = model.add("w", {4}, precision_recipe("zero"));
  EXPECT_EQ(current().device.meter().now()[Kind::Weight], 0);
  EXPECT_EQ(current().device.meter().now()[Kind::Master], 0);
  EXPECT_EQ(p.value.shape(), (Shape{4}));
  EXPECT_EQ(model.numel(), 4);
  const std::string sentence = "'w' has no memory: its model was made with Allocate::Later";
  expect_refused(sentence, [&] { to_host<double>(p.value); });
  expect_refused(sentence, [&] { scale(p.value, 2); });
  expect_refused(sentence, [&] { p.assign({1, 2, 3, 4}); });
  Transformer gpt({.vocab = 5, .context = 2, .layers = 1, .heads = 1, .channels = 2}, Allocate::Later);
  expect_refused("Allocate::Later", [&] { gpt.initialize(1); });
  int64_t assigned = 0;
  gpt.initialize(1, [&](Parameter& q, const std::vector<double>& values) {
    EXPECT_EQ(int64_t(values.size()), q.leaf.shape.numel());
    assigned += int64_t(values.size());
  });
  EXPECT_EQ(assigned, gpt.parameters.numel());
}

}  // namespace
}  // namespace gradus
