// Files saved by one layout and loaded by another (src/parallel/sharded_file.h).
#include "src/parallel/sharded_file.h"

#include <set>

#include "tests/folder_testing.h"
#include "tests/parallel/layout_testing.h"

namespace gradus {
namespace {

struct L20_LayoutFiles : FolderTest {
  LayoutSetting adamw(const TransformerConfig& model, int64_t chunks = 1) const {
    return {.name = "", .model = model, .chunks_per_rank = chunks, .rate = 1e-2, .make = [](Parameters& p) {
              return std::make_unique<AdamW>(p, AdamWArgs{.weight_decay = 0.1f});
            }};
  }
  void save(TrainedRank& r, Comm& comm, const std::string& name) const {
    save_sharded(path(name), comm, r.rank.zero.shards, *r.optimizer, {{"of", "all layouts"}});
  }
  Metadata load(TrainedRank& r, Comm& comm, const std::string& name) const {
    return load_sharded(path(name), comm, r.rank.zero.shards, *r.optimizer);
  }
  // The file of a plain model on one device, without ranks.
  void save_plain(const LayoutSetting& set, const std::string& name) const {
    Context context("cpu", 7);
    Transformer model(set.model);
    model.initialize(3);
    const auto optimizer = set.make(model.parameters);
    save_training(path(name), model.parameters, *optimizer, {{"of", "all layouts"}});
  }
};

TEST_F(L20_LayoutFiles, AnUntrainedModelIsTheSameFileFromEveryLayout) {
  for (TransformerConfig c : {gpt_of_layouts(), neox_of_layouts()})
    for (const char* recipe : {"fp32", "mixed"}) {
      c.precision = precision_recipe(recipe);
      for (const int64_t chunks : {1, 2}) {
        const LayoutSetting set = adamw(c, chunks);
        save_plain(set, "plain");
        const std::string expected = read("plain");
        for (const int64_t ranks : {1, 4})
          for (const Layout& l : layouts_of(ranks, set)) {
            by_layout(set, l, [&](Comm& comm, TrainedRank& r) { save(r, comm, "layout"); });
            EXPECT_TRUE(read("layout") == expected) << l.text() << ", " << recipe << ", chunks " << chunks;
          }
      }
    }
}

// States and counts, too.
TEST_F(L20_LayoutFiles, WhatOneLayoutSavedEveryOtherSavesAgainAsTheSameFile) {
  for (const TransformerConfig& c : {gpt_of_layouts(), neox_of_layouts()}) {
    const LayoutSetting set = adamw(c);
    for (const Layout& from : {Layout{2, 1, 2, 1}, Layout{4, 1, 1, 1}, Layout{1, 2, 2, 1}}) {
      by_layout(set, from, [&](Comm& comm, TrainedRank& r) {
        r.train(0, 2);
        save(r, comm, "first");
      });
      const std::string saved = read("first");
      for (const int64_t ranks : {1, 2, 4, 8})
        for (const Layout& to : layouts_of(ranks, set)) {
          by_layout(set, to, [&](Comm& comm, TrainedRank& r) {
            EXPECT_EQ(load(r, comm, "first").at("of"), "all layouts");
            EXPECT_EQ(r.optimizer->scalars().updates, 2);
            save(r, comm, "again");
          });
          EXPECT_TRUE(read("again") == saved) << from.text() << " to " << to.text();
        }
    }
  }
}

// The first rank's copy of a tied embedding is saved, in whatever order ranks are asked.
TEST_F(L20_LayoutFiles, OfATiedEmbeddingTheFirstRanksCopyIsSaved) {
  const LayoutSetting set = adamw(gpt_of_layouts());
  save_plain(set, "plain");
  by_layout(set, {2, 1, 1, 1}, [&](Comm& comm, TrainedRank& r) {
    Parameter& p = r.rank.zero.shards.find("wte.weight");
    if (comm.rank() == 1) p.assign(std::vector<double>(size_t(p.value.numel()), 7));
    save(r, comm, "layout");
  });
  EXPECT_TRUE(read("layout") == read("plain"));
}

// Plain training can go on from it, too, and its file can be loaded by layouts.
TEST_F(L20_LayoutFiles, OneDeviceLoadsThemAndTheyLoadItsFiles) {
  const LayoutSetting set = adamw(gpt_of_layouts());
  const Layout layout{2, 2, 1, 1};
  by_layout(set, layout, [&](Comm& comm, TrainedRank& r) {
    r.train(0, 2);
    save(r, comm, "layout");
  });
  {
    Context context("cpu", 7);
    Transformer model(set.model);
    const auto optimizer = set.make(model.parameters);
    EXPECT_EQ(load_training(path("layout"), model.parameters, *optimizer).at("of"), "all layouts");
    save_training(path("plain"), model.parameters, *optimizer, {{"of", "all layouts"}});
  }
  EXPECT_TRUE(read("plain") == read("layout"));
  WeightsByName expected;
  by_layout(set, layout, [&](Comm& comm, TrainedRank& r) {
    load(r, comm, "plain");
    const LayoutEnd end = r.train(2, 3);
    for (const auto& [name, values] : end.weights) expected[name] = values;
    EXPECT_EQ(r.optimizer->scalars().updates, 3);
  });
  by_layout(set, layout, [&](Comm&, TrainedRank& r) {
    for (const auto& [name, values] : r.train(0, 3).weights) EXPECT_EQ(values, expected.at(name)) << name;
  });
}

TEST_F(L20_LayoutFiles, TheSameLayoutGoesOnBitEqually) {
  std::vector<LayoutSetting> settings{adamw(gpt_of_layouts()), adamw(neox_of_layouts(0.2)),
                                      adamw(gpt_of_layouts(0.2), 2)};
  settings[0].sequence = Sequence::GatherAgain;
  settings[1].model.precision = precision_recipe("mixed");
  for (const LayoutSetting& set : settings)
    for (const Layout& l : layouts_of(4, set)) {
      std::vector<LayoutEnd> unbroken(4);
      by_layout(set, l, [&](Comm& comm, TrainedRank& r) { unbroken[size_t(comm.rank())] = r.train(0, 4); });
      by_layout(set, l, [&](Comm& comm, TrainedRank& r) {
        r.train(0, 2);
        save(r, comm, "half");
      });
      by_layout(set, l, [&](Comm& comm, TrainedRank& r) {
        load(r, comm, "half");
        const LayoutEnd end = r.train(2, 4);
        const LayoutEnd& expected = unbroken[size_t(comm.rank())];
        EXPECT_EQ(end.losses, std::vector<double>(expected.losses.begin() + 2, expected.losses.end()))
            << l.text();
        EXPECT_EQ(end.norms, std::vector<double>(expected.norms.begin() + 2, expected.norms.end()))
            << l.text();
        EXPECT_EQ(end.weights, expected.weights) << l.text();
      });
    }
}

// Equal except for rounding: SGD replaces AdamW, because AdamW's updates amplify rounding errors.
TEST_F(L20_LayoutFiles, ADifferentLayoutGoesOnAsTheUnbrokenRun) {
  LayoutSetting set = adamw(gpt_of_layouts());
  set.make = [](Parameters& p) { return std::make_unique<Sgd>(p, SgdArgs{.momentum = 0.9f}); };
  set.steps = 4;
  const LayoutEnd plain = train_plainly(set);
  by_layout(set, {2, 1, 2, 1}, [&](Comm& comm, TrainedRank& r) {
    r.train(0, 2);
    save(r, comm, "half");
  });
  for (const Layout& l : layouts_of(4, set))
    by_layout(set, l, [&](Comm& comm, TrainedRank& r) {
      load(r, comm, "half");
      const LayoutEnd end = r.train(2, 4);
      for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(end.losses[i], plain.losses[i + 2], 1e-5) << l.text();
    });
}

// Both copies of a tied embedding, and the copies of norms on tensor ranks, have the saved values.
TEST_F(L20_LayoutFiles, CopiesAreLoadedToo) {
  const LayoutSetting set = adamw(gpt_of_layouts());
  const Layout layout{2, 1, 2, 1};
  by_layout(set, layout, [&](Comm& comm, TrainedRank& r) {
    r.train(0, 1);
    save(r, comm, "f");
  });
  Context context("cpu", 7);
  Transformer whole(set.model);
  const auto optimizer = set.make(whole.parameters);
  load_training(path("f"), whole.parameters, *optimizer);
  WeightsByName weights;
  for (const Parameter& p : whole.parameters) weights[p.name] = to_host<double>(p.value);
  by_layout(set, layout, [&](Comm& comm, TrainedRank& r) {
    load(r, comm, "f");
    for (const Parameter& p : r.rank.model.parameters)
      EXPECT_EQ(to_host<double>(p.value),
                p.shard ? p.shard->of_values(weights.at(p.name)) : weights.at(p.name))
          << p.name << ", rank " << comm.rank();
  });
}

TEST_F(L20_LayoutFiles, FilesOfOtherModelsAreRefusedOnAllRanksAndChangeNothing) {
  const LayoutSetting set = adamw(gpt_of_layouts());
  LayoutSetting deeper = set, wider = set;
  deeper.model.layers = 6, wider.model.vocab = 31;
  save_plain(deeper, "deeper"), save_plain(wider, "wider");
  for (const Layout& l : {Layout{2, 1, 2, 1}, Layout{4, 1, 1, 1}})
    by_layout(set, l, [&](Comm& comm, TrainedRank& r) {
      const auto values = [&] {
        WeightsByName all;
        for (const Parameter& p : r.rank.model.parameters) all[p.name] = to_host<double>(p.value);
        return all;
      };
      const WeightsByName before = values();
      for (const char* name : {"deeper", "wider", "missing"})
        expect_refused("", [&] { load(r, comm, name); });
      EXPECT_EQ(values(), before);
      comm.barrier();
    });
}

TEST_F(L20_LayoutFiles, EveryRankFindsTheWholeFileWhenItsCallReturns) {
  const LayoutSetting set = adamw(gpt_of_layouts());
  save_plain(set, "plain");
  const std::string expected = read("plain");
  for (const Layout& l : layouts_of(4, set)) {
    fs::remove(path("f"));
    by_layout(set, l, [&](Comm& comm, TrainedRank& r) {
      save(r, comm, "f");
      EXPECT_TRUE(read("f") == expected) << l.text() << ", rank " << comm.rank();
    });
  }
}

TEST_F(L20_LayoutFiles, ElementsThatNoRankOrTwoRanksCountAreRefusedOnAllRanks) {
  const LayoutSetting set = adamw(gpt_of_layouts());
  for (const bool counts : {false, true})
    by_layout(set, {2, 1, 2, 1}, [&](Comm& comm, TrainedRank& r) {
      // Of the tied embedding, which is sharded, rank 3 has a shard that rank 1 counts.
      const int64_t changes = counts ? 3 : 1;
      bool changed = false;
      for (Parameter& p : r.rank.zero.shards)
        if (p.name == "wte.weight" && comm.rank() == changes && p.counted != counts)
          p.counted = counts, changed = true;
      EXPECT_EQ(changed, comm.rank() == changes);
      expect_refused("wte.weight", [&] { save(r, comm, "f"); });
      EXPECT_EQ(files(), 0);
      comm.barrier();
      for (Parameter& p : r.rank.zero.shards)
        if (p.name == "wte.weight" && changed) p.counted = !counts;
      comm.barrier();
      save(r, comm, "f");
      EXPECT_EQ(files(), 1);
      comm.barrier();
      if (comm.rank() == 0) fs::remove(path("f"));
    });
}

}  // namespace
}  // namespace gradus
