// Sharded training that was saved can go on with any number of ranks.
#include "src/parallel/sharded_file.h"

#include "src/io/save_load.h"
#include "src/optim/adamw_8bit.h"
#include "tests/folder_testing.h"
#include "tests/parallel/parallel_training.h"
#include "tests/parallel/sharded_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// 12 elements on 5 and on 20 ranks, and all of them on the first one: an empty shard is a shard.
TEST(L18_ZeroShards, ARankMayOwnNothing) {
  const std::string path = testing::TempDir() + "empty_shards.safetensors";
  for (const int stage : {0, 1, 2, 3})
    for (const auto& [ranks, align] : {std::pair(5, 1), {20, 1}, {3, 256}})
      run_cluster({.ranks = ranks}, [&, ranks = ranks, align = align](Comm& comm) {
        Parameters model(Allocate::Later);
        const auto p = add_three(model);
        Zero zero(comm, model, {.stage = stage, .align = align});
        for (Parameter* x : p) zero.assign(*x, {1, 2, 3, 4});
        Sgd optimizer(zero.shards, {.momentum = 0.5f});
        const auto step = [&] {
          model.zero_grad();
          pass(p, {1, 10, 100});
          zero.end_backward();
          optimizer.clip_grad_norm(1e9);
          optimizer.step(1.0 / ranks);
        };
        step();
        save_sharded(path, comm, zero.shards, optimizer);
        step();
        load_sharded(path, comm, zero.shards, optimizer);
        step();
        for (size_t i = 0; i < 3; ++i) {
          const double g = i == 0 ? 1 : i == 1 ? 10 : 100;
          const std::vector<double> got = to_host<double>(p[i]->value);
          for (size_t at = 0; at < 4; ++at)
            EXPECT_NEAR(got[at], double(at + 1) - g - 1.5 * g, 1e-4) << stage << ", " << ranks << " ranks";
        }
        comm.barrier();
      });
  std::filesystem::remove(path);
}

struct L18_ZeroSaveLoad : FolderTest {};

// Trains from step `from` on, after loading unless that is 0, and saves at the end if `save` is given.
Weights train_part(ShardedSetting set, int stage, int64_t from, const std::string& load,
                   const std::string& save, int64_t align = 1) {
  Weights weights;
  set.first_step = from;
  if (from > 0)
    set.load = [&](Comm& comm, Zero& zero, Optimizer& o) { load_sharded(load, comm, zero.shards, o); };
  run_cluster({.ranks = set.ranks, .seed = 3}, [&](Comm& comm) {
    const auto inspect = [&](Transformer& model, Zero& zero, Optimizer& optimizer) {
      if (!save.empty()) save_sharded(save, comm, zero.shards, optimizer, {{"note", "half way"}});
      const Weights mine = weights_of(model);
      if (comm.rank() == 0) weights = mine;
    };
    train_with_zero(set, comm, {.stage = stage, .unit = unit_per_block, .align = align}, inspect);
  });
  return weights;
}

TEST_F(L18_ZeroSaveLoad, OnAsManyRanksItIsTheUnbrokenRun) {
  ShardedSetting half{.ranks = 4, .steps = 5}, whole{.ranks = 4, .steps = 10};
  for (const int stage : {0, 1, 2, 3}) {
    train_part(half, stage, 0, "", path("half"));
    EXPECT_EQ(train_part(whole, stage, 5, path("half"), ""), train_part(whole, stage, 0, "", ""))
        << "stage " << stage;
  }
}

// And right after loading, before any step, the weights are the saved ones, in 16 bits, too.
TEST_F(L18_ZeroSaveLoad, WhatIsLoadedAndSavedIsTheSameFileOnAnyNumberOfRanks) {
  ShardedSetting set{.ranks = 4, .steps = 3};
  set.model.channels = 40, set.model.precision = precision_recipe("zero");
  for (const int64_t align : {int64_t(1), kStateBlock}) {
    if (align > 1) set.make = optimizer_of<AdamW8bit>();
    const Weights weights = train_part(set, 3, 0, "", path("saved"), align);
    const std::string saved = read("saved");
    for (const int64_t ranks : {1, 2, 3, 4, 8})
      for (const int stage : {0, 1, 2, 3}) {
        ShardedSetting other = set;
        other.ranks = ranks;
        EXPECT_EQ(train_part(other, stage, 3, path("saved"), path("again"), align), weights);
        EXPECT_TRUE(read("again") == saved) << ranks << " ranks, stage " << stage;
      }
  }
}

TEST_F(L18_ZeroSaveLoad, EveryRankFindsTheFileAndOnlyOwnersSend) {
  for (const int stage : {0, 1, 3})
    run_cluster({.ranks = 3}, [&](Comm& comm) {
      ShardedTransformer sharded({.vocab = 8, .context = 4, .layers = 2, .heads = 1, .channels = 6}, comm,
                                 {.stage = stage, .unit = unit_per_block});
      Zero& zero = sharded.zero;
      const AdamW optimizer(zero.shards);
      fs::remove(path("f"));
      comm.barrier();
      const auto before = comm.sent();
      save_sharded(path("f"), comm, zero.shards, optimizer);
      EXPECT_TRUE(fs::exists(path("f"))) << "rank " << comm.rank();
      int64_t own = 0;  // weights and two states
      for (const Parameter& p : zero.shards) own += 3 * p.value.numel();
      // In addition to these, in fp32: lists of tensors, in bytes, and one size (int64) to each other rank.
      const int64_t bytes = comm.sent().bytes - before.bytes, n = comm.sent().elements - before.elements;
      EXPECT_EQ((bytes - n - 2 * 7) / 3, stage > 0 && comm.rank() > 0 ? own : 0);
    });
}

TEST_F(L18_ZeroSaveLoad, FilesOfOthersAreRefusedAndChangeNothing) {
  const ShardedSetting set{.ranks = 2, .steps = 1};
  ShardedSetting longer = set, later = set;
  longer.model.layers = 4;   // has all tensors of the smaller model, and more
  later.model.context = 17;  // wte.weight, the first, is right, wpe.weight is not
  train_part(longer, 3, 0, "", path("longer"));
  train_part(later, 3, 0, "", path("later"));
  train_part(set, 3, 0, "", path("saved"));
  write("cut", read("saved").substr(0, 3000));
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    ShardedTransformer sharded(set.model, comm, {.stage = 2, .unit = unit_per_block});
    auto& [model, zero] = sharded;
    const auto optimizer = set.make(zero.shards);
    const Weights before = weights_of(model);
    expect_refused("this model needs", [&] { load_sharded(path("longer"), comm, zero.shards, *optimizer); });
    expect_refused("tensor wpe.weight is",
                   [&] { load_sharded(path("later"), comm, zero.shards, *optimizer); });
    expect_refused("missing", [&] { load_sharded(path("missing"), comm, zero.shards, *optimizer); });
    expect_refused("cut", [&] { load_sharded(path("cut"), comm, zero.shards, *optimizer); });
    Sgd sgd(zero.shards);
    expect_refused("this model needs", [&] { load_sharded(path("saved"), comm, zero.shards, sgd); });
    EXPECT_EQ(weights_of(model), before);
  });
}

TEST_F(L18_ZeroSaveLoad, AnOptimizerOfSomeOfTheShardsIsRefused) {
  ShardedSetting set{.ranks = 2, .steps = 1};
  train_part(set, 3, 0, "", path("saved"));
  set.make = [](Parameters& p) {
    return std::make_unique<AdamW>(p, AdamWArgs{}, [](const Parameter& q) { return q.decay; });
  };
  for (const int stage : {0, 3}) {
    expect_refused("one optimizer of all", [&] { train_part(set, stage, 0, "", path("some")); });
    expect_refused("one optimizer of all", [&] { train_part(set, stage, 1, path("saved"), ""); });
  }
  EXPECT_EQ(files(), 1);
}

// Also for a file that would be right, if the parts begin within blocks when it is loaded.
TEST_F(L18_ZeroSaveLoad, PartsWithinABlockAreRefusedBeforeAnythingChanges) {
  ShardedSetting set{.ranks = 2, .steps = 1, .make = optimizer_of<AdamW8bit>()};
  set.model.channels = 40;
  expect_refused("give ZeroArgs::align", [&] { train_part(set, 3, 0, "", path("f")); });
  train_part(set, 3, 0, "", path("aligned"), kStateBlock);
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    Transformer model(set.model, Allocate::Later);
    Zero zero(comm, model.parameters, {.stage = 3, .unit = unit_per_block});
    const auto optimizer = set.make(zero.shards);
    for (Parameter& p : zero.shards) p.assign(std::vector<double>(size_t(p.value.numel()), 7));
    if (comm.rank() == 0) return;
    expect_refused("give ZeroArgs::align",
                   [&] { load_sharded(path("aligned"), comm, zero.shards, *optimizer); });
    for (const Parameter& p : zero.shards)
      for (const double w : to_host<double>(p.kept())) ASSERT_EQ(w, 7) << p.name;
  });
}

// ---- a file of whole weights: each rank keeps its part, or the file is rejected and nothing changes ----

struct L18_ZeroWeightsFile : FolderTest {};

// Compares the weights after an update.
TEST_F(L18_ZeroWeightsFile, IsLoadedOrRefused) {
  for (const Precision& precision : {uniform(DType::F32), mixed(DType::BF16)}) {
    ShardedSetting set;
    set.model.precision = precision;
    Context context("cpu");
    Transformer whole(set.model);
    whole.initialize(2);
    for (Parameter& p : whole.parameters) p.master = {};  // saves the weights that compute
    save_weights(path("w"), whole.parameters);
    for (const int stage : {0, 1, 2, 3})
      run_cluster({.ranks = 2, .seed = 3}, [&](Comm& comm) {
        ShardedTransformer sharded(set.model, comm, {.stage = stage, .unit = unit_per_block});
        auto& [model, zero] = sharded;
        const Weights before = weights_of(model);
        zero.end_forward();
        const std::string text = refusal([&] { load_weights(path("w"), model.parameters); });
        (*zero.shards.shares)->updated();  // gathers the other ranks' parts
        EXPECT_EQ(text.empty(), stage < 3 && !precision.master) << text;
        EXPECT_EQ(weights_of(model), text.empty() ? weights_of(whole) : before) << "stage " << stage;
        EXPECT_EQ(text.empty(), text.find("load_sharded()") == std::string::npos) << text;
      });
  }
}

}  // namespace
}  // namespace gradus
