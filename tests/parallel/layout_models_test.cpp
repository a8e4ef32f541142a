// Training by the ranks of a layout (RankModel in src/parallel/layout.h) compared with plain training on one
// device by SGD.
#include <algorithm>

#include "tests/devices.h"
#include "tests/parallel/layout_testing.h"

namespace gradus {
namespace {

// Every rank's losses, norms, and its shards of the weights.
void expect_as_plain(const LayoutSetting& set, const Layout& layout, const LayoutEnd& plain,
                     double bound = 1e-6) {
  const std::string what = set.name + ", " + layout.text() + ", chunks " +
                           std::to_string(set.chunks_per_rank) + ", sequence form " +
                           std::to_string(int(set.sequence));
  by_layout(set, layout, [&](Comm& comm, TrainedRank& rank) {
    const LayoutEnd own = rank.train(0, set.steps);
    const std::string where = what + ", rank " + std::to_string(comm.rank());
    for (size_t i = 0; i < own.losses.size(); ++i) {
      EXPECT_NEAR(own.losses[i], plain.losses[i], bound * plain.losses[i]) << where << ", loss " << i;
      EXPECT_NEAR(own.norms[i], plain.norms[i], bound * plain.norms[i]) << where << ", norm " << i;
    }
    for (const Parameter& p : rank.rank.model.parameters) {
      const std::vector<double>& whole = plain.weights.at(p.name);
      std::vector<double> difference = own.weights.at(p.name),
                          expected = p.shard ? p.shard->of_values(whole) : whole;
      ASSERT_EQ(difference.size(), expected.size()) << where << ", " << p.name;
      for (size_t i = 0; i < expected.size(); ++i) difference[i] -= expected[i];
      EXPECT_LE(norm_of_all(difference), 2 * bound * std::max(norm_of_all(whole), 1.0))
          << where << ", " << p.name;
    }
  });
}
void expect_all_as_plain(const LayoutSetting& set, const std::vector<int64_t>& all_ranks) {
  const LayoutEnd plain = train_plainly(set);
  EXPECT_TRUE(set.max_norm == 0 || plain.norms.front() > set.max_norm) << "otherwise nothing is clipped";
  int64_t layouts = 0;
  for (const int64_t ranks : all_ranks)
    for (const Layout& l : layouts_of(ranks, set)) expect_as_plain(set, l, plain), ++layouts;
  EXPECT_GT(layouts, 0);
}

TEST(L20_LayoutModels, GptOnAllLayoutsOfFourAndEightRanks) {
  expect_all_as_plain({.name = "GPT", .model = gpt_of_layouts()}, {1, 2, 4, 8});
}
TEST(L20_LayoutModels, GptWithoutClipping) {
  expect_all_as_plain({.name = "GPT", .model = gpt_of_layouts(), .max_norm = 0}, {4});
}
TEST(L20_LayoutModels, NeoxOnAllLayoutsOfFourAndEightRanks) {
  expect_all_as_plain({.name = "GPT-NeoX", .model = neox_of_layouts()}, {2, 4, 8});
}
TEST(L20_LayoutModels, InterleavedChunks) {
  expect_all_as_plain({.name = "GPT", .model = gpt_of_layouts(), .chunks_per_rank = 2}, {2, 4, 8});
}
TEST(L20_LayoutModels, DropoutWhereContextIsNotShared) {
  for (const int64_t chunks : {1, 2})
    expect_all_as_plain({.name = "dropout", .model = gpt_of_layouts(0.2), .chunks_per_rank = chunks},
                        {2, 4, 8});
  expect_all_as_plain({.name = "GPT-NeoX, dropout", .model = neox_of_layouts(0.2)}, {4});
}
TEST(L20_LayoutModels, SequenceFormsInAPipelineWithAndWithoutDropout) {
  for (const Sequence sequence : {Sequence::KeepGathered, Sequence::GatherAgain})
    for (const double dropout : {0.0, 0.2})
      for (const int64_t chunks : {1, 2}) {
        expect_all_as_plain({.name = "GPT",
                             .model = gpt_of_layouts(dropout),
                             .chunks_per_rank = chunks,
                             .sequence = sequence},
                            {4});
        expect_all_as_plain({.name = "GPT-NeoX",
                             .model = neox_of_layouts(dropout),
                             .chunks_per_rank = chunks,
                             .sequence = sequence},
                            {4});
      }
  expect_all_as_plain({.name = "GPT", .model = gpt_of_layouts(), .sequence = Sequence::GatherAgain}, {8});
}
TEST(L20_LayoutModels, OnEmu) {
  LayoutSetting set{.name = "emu", .model = gpt_of_layouts(), .steps = 1, .sequences = 4, .device = "emu"};
  set.model.context = 4, set.model.layers = 2;
  const LayoutEnd plain = train_plainly(set);
  for (const Layout& l : {Layout{2, 1, 2, 1}, Layout{2, 2, 1, 1}, Layout{2, 1, 1, 2}})
    expect_as_plain(set, l, plain);
}
TEST(L20_LayoutModels, SixteenBitsWithin1PerCent) {
  LayoutSetting set{.name = "mixed", .model = gpt_of_layouts()};
  set.model.precision = precision_recipe("mixed");
  const LayoutEnd plain = train_plainly(set);
  for (const Layout& l : layouts_of(4, set)) expect_as_plain(set, l, plain, 1e-2);
}

// ---- what is counted, and what optimizers keep ----

struct Owned {
  std::map<std::string, std::vector<int>> times;  // by parameter: how often each element is counted
  std::vector<int64_t> states;                    // by rank: elements of the optimizer's states
};
Owned owned(const LayoutSetting& set, const Layout& layout) {
  Owned all;
  all.states.resize(size_t(layout.ranks()));
  by_layout(set, layout, [&](Comm& comm, TrainedRank& rank) {
    int64_t n = 0;
    for (const Parameter& p : rank.rank.zero.shards) {
      const Shard shard = p.shard ? *p.shard : Shard::of(p.value.shape());
      n += shard.count;
      std::vector<int>& times = all.times[p.name];
      times.resize(size_t(shard.whole.numel()));
      shard.each_range([&](int64_t at, int64_t, int64_t count) {
        for (int64_t i = 0; i < count; ++i) times[size_t(at + i)] += p.counted;
      });
    }
    all.states[size_t(comm.rank())] = n;
  });
  return all;
}

TEST(L20_LayoutModels, EachElementIsCountedByOneRank) {
  for (const TransformerConfig& c : {gpt_of_layouts(), neox_of_layouts()})
    for (const int64_t chunks : {1, 2})
      for (const Sequence sequence : {Sequence::Whole, Sequence::GatherAgain}) {
        const LayoutSetting set{.name = "", .model = c, .chunks_per_rank = chunks, .sequence = sequence};
        for (const int64_t ranks : {1, 4, 8})
          for (const Layout& l : layouts_of(ranks, set)) {
            int64_t elements = 0;
            for (const auto& [name, times] : owned(set, l).times) {
              elements += int64_t(times.size());
              EXPECT_EQ(std::count(times.begin(), times.end(), 1), int64_t(times.size()))
                  << l.text() << ", " << name;
            }
            EXPECT_EQ(elements, c.parameter_count()) << l.text();
          }
      }
}

// ZeRO-1 among the replicas: each keeps its part of the states, not all of them.
TEST(L20_LayoutModels, StatesAreDividedAmongReplicas) {
  const LayoutSetting set{.name = "", .model = gpt_of_layouts()};
  for (const Layout& l : layouts_of(8, set)) {
    const std::vector<int64_t> states = owned(set, l).states;
    const int64_t replicas = l.data * l.context;
    std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>> of_part;  // the sum and the most
    for (int64_t r = 0; r < l.ranks(); ++r) {
      const Layout place = l.place_of(r);
      auto& [sum, most] = of_part[{place.pipeline, place.tensor}];
      sum += states[size_t(r)], most = std::max(most, states[size_t(r)]);
    }
    for (const auto& [part, n] : of_part)
      EXPECT_LE(n.second, (n.first + replicas - 1) / replicas) << l.text();
  }
}

TEST(L20_LayoutModels, AnErrorOfOneRankEndsAllRanksOfALayout) {
  const LayoutSetting set{.name = "", .model = gpt_of_layouts()};
  for (const Layout& l : layouts_of(8, set))
    for (const int64_t fails : {int64_t(0), l.ranks() - 1})
      expect_refused("rank " + std::to_string(fails) + ": ", [&] {
        by_layout(set, l, [&](Comm& comm, TrainedRank& r) {
          r.train(0, 1);
          if (comm.rank() == fails) fail("boom");
          r.train(1, 2);
        });
      });
  expect_as_plain(set, {2, 1, 2, 2}, train_plainly(set));
}

}  // namespace
}  // namespace gradus
