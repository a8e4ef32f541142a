// Places, groups and micro-batches of the ranks of a layout (src/parallel/layout.h).
#include <set>

#include "src/parallel/context_parallel.h"
#include "tests/parallel/layout_testing.h"

namespace gradus {
namespace {

std::vector<Layout> all_layouts(int64_t most) {
  std::vector<Layout> all;
  for (int64_t p = 1; p <= 3; ++p)
    for (int64_t d = 1; d <= 3; ++d)
      for (int64_t t = 1; t <= 3; ++t)
        for (int64_t c = 1; c <= 3; ++c)
          if (p * d * t * c <= most) all.push_back({p, d, t, c});
  return all;
}

TEST(L20_LayoutGroups, RanksAreNumberedByTensorThenContextDataAndPipelineLast) {
  for (const Layout& l : all_layouts(81)) {
    int64_t rank = 0;
    for (int64_t p = 0; p < l.pipeline; ++p)
      for (int64_t d = 0; d < l.data; ++d)
        for (int64_t c = 0; c < l.context; ++c)
          for (int64_t t = 0; t < l.tensor; ++t, ++rank) {
            const Layout place = l.place_of(rank);
            EXPECT_EQ(place.pipeline, p) << l.text() << ", rank " << rank;
            EXPECT_EQ(place.data, d) << l.text() << ", rank " << rank;
            EXPECT_EQ(place.context, c) << l.text() << ", rank " << rank;
            EXPECT_EQ(place.tensor, t) << l.text() << ", rank " << rank;
          }
    EXPECT_EQ(rank, l.ranks());
  }
  EXPECT_EQ((Layout{2, 3, 4, 5}.text()), "p2 d3 t4 c5");
}

// The ranks whose places equal this one's except in some directions.
std::vector<int64_t> alike(const Layout& l, int64_t rank, bool pipeline, bool data, bool tensor,
                           bool context) {
  const Layout own = l.place_of(rank);
  std::vector<int64_t> all;
  for (int64_t r = 0; r < l.ranks(); ++r) {
    const Layout o = l.place_of(r);
    if ((pipeline || o.pipeline == own.pipeline) && (data || o.data == own.data) &&
        (tensor || o.tensor == own.tensor) && (context || o.context == own.context))
      all.push_back(r);
  }
  return all;
}

TEST(L20_LayoutGroups, EachGroupHasTheRanksThatDifferInItsDirectionAlone) {
  for (const Layout& l : all_layouts(24))
    run_cluster({.ranks = l.ranks(), .device = "meta"}, [&](Comm& comm) {
      const LayoutGroups g(comm, l);
      const int64_t rank = comm.rank();
      const Layout place = l.place_of(rank);
      EXPECT_EQ(g.place.text(), place.text()) << l.text();
      EXPECT_EQ(g.pipeline->members(), alike(l, rank, true, false, false, false)) << l.text();
      EXPECT_EQ(g.tensor->members(), alike(l, rank, false, false, true, false)) << l.text();
      EXPECT_EQ(g.context->members(), alike(l, rank, false, false, false, true)) << l.text();
      EXPECT_EQ(g.replicas->members(), alike(l, rank, false, true, false, true)) << l.text();
      EXPECT_EQ(g.pipeline->rank(), place.pipeline) << l.text();
      EXPECT_EQ(g.tensor->rank(), place.tensor) << l.text();
      EXPECT_EQ(g.context->rank(), place.context) << l.text();
      EXPECT_EQ(g.replicas->rank(), place.data * l.context + place.context) << l.text();
    });
}

TEST(L20_LayoutGroups, ADifferentNumberOfRanksIsRefusedOnAll) {
  for (const Layout& l : {Layout{2, 2, 1, 1}, Layout{1, 1, 1, 1}, Layout{1, 1, 3, 2}, Layout{1, 8, 1, 1}})
    run_cluster({.ranks = 2, .device = "meta"}, [&](Comm& comm) {
      expect_refused("2", [&] { LayoutGroups(comm, l); });
      const LayoutGroups right(comm, {.tensor = 2});
      EXPECT_EQ(right.tensor->size(), 2);
    });
}

TEST(L20_LayoutGroups, ModelsThatALayoutDoesNotFitAreRefused) {
  TransformerConfig dropout = gpt_of_layouts(0.1), neox = neox_of_layouts();
  const auto refused = [](const TransformerConfig& c, const Layout& l) {
    return refusal([&] {
      run_cluster({.ranks = l.ranks()}, [&](Comm& comm) {
        RankModel rank(comm, l, c, even_cuts(c.layers, l.pipeline));
        rank.initialize(1);
      });
    });
  };
  EXPECT_EQ(refused(gpt_of_layouts(), {2, 1, 2, 2}), "");
  EXPECT_NE(refused(gpt_of_layouts(), {1, 1, 3, 1}), "") << "3 do not divide the heads";
  EXPECT_NE(refused(dropout, {1, 1, 1, 2}), "") << "dropout masks of divided tokens";
  EXPECT_NE(refused(neox, {1, 1, 1, 2}), "") << "rotary positions of divided tokens";
  EXPECT_NE(refusal([&] {
              run_cluster({.ranks = 2}, [&](Comm& comm) {
                RankModel(comm, {2, 1, 1, 1}, gpt_of_layouts(), even_cuts(4, 1));
              });
            }),
            "")
      << "one chunk for two ranks";
}

// ---- micro-batches ----

TEST(L20_LayoutGroups, MicroBatchesAreTheSequencesOfTheDataRankInOrder) {
  const LayoutSetting set{.name = "", .model = gpt_of_layouts(), .sequences = 12};
  TextBatch batch = batch_of(set, 0);
  batch.first_sample = 100;
  for (const Layout& l : {Layout{1, 2, 1, 1}, Layout{2, 1, 1, 1}, Layout{1, 3, 2, 1}, Layout{1, 2, 1, 2}})
    for (const int64_t count : {1, 2})
      run_cluster({.ranks = l.ranks()}, [&](Comm& comm) {
        const RankModel rank(comm, l, set.model, even_cuts(4, l.pipeline));
        const Layout place = l.place_of(comm.rank());
        const std::vector<TextBatch> own = rank.micro_batches(batch, count);
        ASSERT_EQ(int64_t(own.size()), count);
        const int64_t n = 12 / l.data / count;
        for (int64_t i = 0; i < count; ++i) {
          const int64_t first = (place.data * count + i) * n;
          const TextBatch part = batch.part(first, n),
                          expected = l.context > 1 ? chunks_of(part, place.context, l.context) : part;
          EXPECT_EQ(own[size_t(i)].ids, expected.ids) << l.text();
          EXPECT_EQ(own[size_t(i)].targets, expected.targets) << l.text();
          EXPECT_EQ(own[size_t(i)].first_sample, 100 + first) << l.text();
          EXPECT_EQ(own[size_t(i)].sequences, n) << l.text();
          EXPECT_EQ(own[size_t(i)].T, 8 / l.context) << l.text();
        }
      });
}

TEST(L20_LayoutGroups, ABatchThatCannotBeDividedIsRefused) {
  const LayoutSetting set{.name = "", .model = gpt_of_layouts(), .sequences = 6};
  run_cluster({.ranks = 4}, [&](Comm& comm) {
    const RankModel rank(comm, {1, 4, 1, 1}, set.model, even_cuts(4, 1));
    expect_refused("", [&] { rank.micro_batches(batch_of(set, 0), 1); });
  });
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    const RankModel rank(comm, {1, 2, 1, 1}, set.model, even_cuts(4, 1));
    for (const int64_t count : {0, 4, -1})
      expect_refused("", [&] { rank.micro_batches(batch_of(set, 0), count); });
    EXPECT_EQ(rank.micro_batches(batch_of(set, 0), 3).size(), 3u);
  });
}

}  // namespace
}  // namespace gradus
