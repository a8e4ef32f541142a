// Llama-shaped models and mixtures of experts with data parallelism and ZeRO, and the files of such runs.
#include "src/optim/adamw_8bit.h"
#include "src/optim/muon.h"
#include "src/parallel/sharded_file.h"
#include "tests/folder_testing.h"
#include "tests/parallel/mixture_on_ranks.h"
#include "tests/parallel/parallel_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// Both kinds, few heads of keys and values, and experts, each with settings that matter for sums of
// gradients.
std::vector<ShardedSetting> settings_of_llama() {
  std::vector<ShardedSetting> all;
  for (const TransformerConfig& c : {llama(2, 0.1), mixtral(0.1), gpt_of_experts(0.1)}) {
    const ShardedSetting set{.name = c.experts == 0           ? "Llama"
                                     : c.activation == swiglu ? "Mixtral"
                                                              : "GPT of experts",
                             .model = c,
                             .ranks = 2,
                             .steps = 3,
                             .batch = 4};
    all.push_back(set);
    all.push_back(set), all.back().ranks = 3, all.back().micro_batches = 2, all.back().batch = 12;
    all.push_back(set), all.back().ranks = 4, all.back().max_norm = 1e3;
    all.push_back(set), all.back().model.precision = precision_recipe("zero"), all.back().steps = 2;
  }
  return all;
}
std::vector<ShardedSetting> small_on_emu() {
  std::vector<ShardedSetting> all;
  for (ShardedSetting set : settings_of_llama()) {
    if (set.ranks != 3) continue;
    set.ranks = 2, set.batch = 4, set.steps = 1, set.model.layers = 1, set.model.context = 4;
    set.device = "emu";
    all.push_back(set);
  }
  return all;
}

// Balance losses are shares of the whole batch's, too, so sums of gradients are bitwise equal to those of one
// device.
TEST(L21_LlamaRanks, DataParallel) {
  expect_all_train(settings_of_llama(), ways_of<BucketSetting>({{}, {4, true}, {3000}, {3000, true}}));
}
TEST(L21_LlamaRanks, Zero) { expect_all_train(settings_of_llama(), ways_of(all_ways())); }
TEST(L21_LlamaRanks, DataParallelAndZeroOnTheEmulatedGpu) {
  expect_all_train(small_on_emu(), ways_of<BucketSetting>({{3000, true}}));
  expect_all_train(small_on_emu(), ways_of(some_ways()));
}

// ---- files ----

struct L21_ShardedFile : FolderTest {};

// A step of AdamW on a mixture whose experts are divided among ranks; then it is saved.
void train_and_save(Comm& comm, ExpertsOfRanks& m, Optimizer& optimizer, const std::string& path) {
  const ModelSetting set{.name = "", .model = m.model.config, .B = 4, .with_count = true};
  m.model.parameters.zero_grad();
  pass(set, m.model, comm.rank() * 4 / comm.size(), 4 / comm.size());
  m.parallel.sum_gradients();
  optimizer.step(1e-2);
  save_sharded(path, comm, m.model.parameters, optimizer);
}

// Parts of three-dimensional weights form the file of a whole model; any number of ranks that divides the
// experts can go on with it.
TEST_F(L21_ShardedFile, OfExpertsOnRanks) {
  for (const char* recipe : {"fp32", "mixed"}) {
    TransformerConfig c = mixtral(0.1);
    c.precision = precision_recipe(recipe);
    run_cluster({.ranks = 4, .seed = 7}, [&](Comm& comm) {
      ExpertsOfRanks m(comm, c);
      AdamW optimizer(m.model.parameters);
      train_and_save(comm, m, optimizer, path("four"));
    });
    std::map<std::string, Values> whole;
    {
      Context context("cpu", 7);
      Transformer model(c);
      AdamW optimizer(model.parameters);
      load_training(path("four"), model.parameters, optimizer);
      EXPECT_EQ(optimizer.scalars().updates, 1);
      for (const Parameter& p : model.parameters) whole[p.name] = to_host<double>(p.kept());
      save_training(path("one"), model.parameters, optimizer);
      EXPECT_TRUE(read("one") == read("four")) << recipe;
    }
    for (const int64_t ranks : {1, 2, 4})
      run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
        ExpertsOfRanks m(comm, c);
        AdamW optimizer(m.model.parameters);
        load_sharded(path("four"), comm, m.model.parameters, optimizer);
        for (const Parameter& p : m.model.parameters) {
          const Values& all = whole.at(p.name);
          EXPECT_EQ(to_host<double>(p.kept()), p.shard ? p.shard->of_values(all) : all) << p.name;
        }
        save_sharded(path("again"), comm, m.model.parameters, optimizer);
        EXPECT_TRUE(read("again") == read("four")) << recipe << ", " << ranks << " ranks";
        comm.barrier();
      });
  }
}

// On the same ranks, the second step after loading is that of a run that was never stopped.
TEST_F(L21_ShardedFile, TrainingGoesOn) {
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    ExpertsOfRanks unbroken(comm, mixtral(0.1));
    AdamW optimizer(unbroken.model.parameters);
    train_and_save(comm, unbroken, optimizer, path("first"));
    train_and_save(comm, unbroken, optimizer, path("second"));
    ExpertsOfRanks again(comm, mixtral(0.1));
    AdamW other(again.model.parameters);
    load_sharded(path("first"), comm, again.model.parameters, other);
    train_and_save(comm, again, other, path("third"));
    EXPECT_TRUE(read("third") == read("second"));
    comm.barrier();
  });
}

TEST_F(L21_ShardedFile, OfAMixtureWithZero) {
  ShardedSetting set{.model = mixtral(0.1), .ranks = 4, .steps = 2, .batch = 4};
  run_cluster(cluster_of(set), [&](Comm& comm) {
    train_with_zero(set, comm, {.stage = 3, .unit = unit_per_block},
                    [&](Transformer&, Zero& zero, Optimizer& optimizer) {
                      save_sharded(path("zero"), comm, zero.shards, optimizer);
                    });
  });
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    ExpertsOfRanks m(comm, set.model);
    AdamW optimizer(m.model.parameters);
    load_sharded(path("zero"), comm, m.model.parameters, optimizer);
    save_sharded(path("experts"), comm, m.model.parameters, optimizer);
    EXPECT_TRUE(read("experts") == read("zero"));
    comm.barrier();
  });
}

// ---- optimizers that need whole matrices ----

TEST(L21_LlamaRanks, OptimizersOfMatricesRefuseAPartOfTheExperts) {
  run_cluster({.ranks = 2, .seed = 7}, [](Comm& comm) {
    ExpertsOfRanks m(comm, mixtral());
    const std::string text =
        ": 'h.0.mlp.experts.c_fc.weight' is a shard of a parameter [4,48,16], but its update needs whole "
        "matrices";
    expect_refused("muon" + text, [&] { Muon(m.model.parameters); });
    expect_refused("adafactor" + text, [&] { Adafactor(m.model.parameters); });
    AdamW8bit eight_bits(m.model.parameters);
  });
}

}  // namespace
}  // namespace gradus
