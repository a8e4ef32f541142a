// Generated schedules have the tasks that they should have, and play() says when each begins and ends
// (src/parallel/schedule.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "src/core/rng.h"
#include "src/parallel/schedule.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

std::vector<std::pair<std::string, Schedule>> generated(int64_t most_ranks, int64_t most_micro_batches) {
  std::vector<std::pair<std::string, Schedule>> all;
  for (int64_t p = 1; p <= most_ranks; ++p)
    for (int64_t m = 1; m <= most_micro_batches; ++m) {
      const std::string of = std::to_string(p) + " ranks, " + std::to_string(m) + " micro-batches";
      all.push_back({"gpipe, " + of, gpipe(p, m)});
      all.push_back({"1F1B, " + of, one_forward_one_backward(p, m)});
      for (int64_t v = 1; v <= 4; ++v)
        if (m % p == 0)
          all.push_back({"interleaved by " + std::to_string(v) + ", " + of, interleaved(p, m, v)});
    }
  return all;
}

std::vector<ChunkTimes> random_times(Rng& rng, int64_t chunks) {
  std::vector<ChunkTimes> all;
  for (int64_t c = 0; c < chunks; ++c) all.push_back({0.25 + rng.uniform(), 0.25 + 2 * rng.uniform()});
  return all;
}

TEST(L20_Schedules, EachRankHasEachTaskOfItsChunksOnce) {
  for (const auto& [name, s] : generated(7, 9)) {
    const int64_t v = s.chunks / s.ranks();
    ASSERT_EQ(s.chunks, v * s.ranks()) << name;
    for (int64_t rank = 0; rank < s.ranks(); ++rank) {
      std::vector<int> seen(size_t(2 * s.micro_batches * s.chunks), 0);
      for (const Task& t : s.of_rank[size_t(rank)]) {
        ASSERT_EQ(t.chunk % s.ranks(), rank) << name;
        ASSERT_TRUE(t.micro_batch >= 0 && t.micro_batch < s.micro_batches && t.chunk < s.chunks) << name;
        ++seen[s.index(t)];
        ASSERT_EQ(s.task(s.index(t)), t) << name;
      }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 2 * s.micro_batches * v) << name;
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 0), 2 * s.micro_batches * (s.chunks - v)) << name;
    }
  }
}

// Then gradients are added in the order of accumulation.
TEST(L20_Schedules, MicroBatchesOfAChunkAreInOrderInBothPasses) {
  for (const auto& [name, s] : generated(7, 9))
    for (const std::vector<Task>& list : s.of_rank) {
      std::map<std::pair<Pass, int64_t>, int64_t> next;
      for (const Task& t : list) ASSERT_EQ(t.micro_batch, (next[{t.pass, t.chunk}]++)) << name;
    }
}

TEST(L20_Schedules, GpipeHasAllForwardPassesFirst) {
  for (const int64_t p : {1, 3, 5})
    for (const int64_t m : {1, 2, 7})
      for (const std::vector<Task>& list : gpipe(p, m).of_rank)
        for (size_t i = 0; i < list.size(); ++i)
          EXPECT_EQ(list[i].pass, int64_t(i) < m ? Pass::Forward : Pass::Backward);
}

TEST(L20_Schedules, InterleavedWithOneChunkIsOneForwardOneBackward) {
  for (const int64_t p : {1, 2, 3, 4})
    for (const int64_t m : {p, 2 * p, 3 * p})
      EXPECT_EQ(interleaved(p, m, 1).of_rank, one_forward_one_backward(p, m).of_rank) << p << " " << m;
}

TEST(L20_Schedules, WhatCannotBeGeneratedIsRefused) {
  expect_refused("3", [] { interleaved(2, 3, 2); });
  for (const int64_t wrong : {int64_t(0), int64_t(-1)}) {
    expect_refused("", [&] { gpipe(wrong, 4); });
    expect_refused("", [&] { gpipe(4, wrong); });
    expect_refused("", [&] { one_forward_one_backward(wrong, 4); });
    expect_refused("", [&] { one_forward_one_backward(4, wrong); });
    expect_refused("", [&] { interleaved(wrong, 4, 2); });
    expect_refused("", [&] { interleaved(4, wrong, 2); });
    expect_refused("", [&] { interleaved(4, 4, wrong); });
  }
}

// ---- play() compared with a simulation: times are raised until nothing is too early ----

struct Simulated {
  std::vector<std::vector<std::pair<double, double>>> of_rank;  // begin and end
  double seconds = 0, bubble = 0;
  std::vector<int64_t> in_flight;
};

Simulated simulate(const Schedule& s, const std::vector<ChunkTimes>& times,
                   const std::vector<double>& links) {
  std::vector<double> end(size_t(2 * s.micro_batches * s.chunks), 0);
  Simulated r;
  r.of_rank.resize(s.of_rank.size());
  const auto arrival = [&](Pass pass, int64_t micro, int64_t chunk, int64_t to) {
    const int64_t from = chunk % s.ranks();
    const double link = links.empty() ? 0 : links[size_t(pass == Pass::Forward ? from : to)];
    return end[s.index({pass, micro, chunk})] + link;
  };
  for (bool changed = true; changed;) {
    changed = false;
    double busy = 0;
    for (int64_t rank = 0; rank < s.ranks(); ++rank) {
      double now = 0;
      auto& list = r.of_rank[size_t(rank)];
      list.clear();
      for (const Task& t : s.of_rank[size_t(rank)]) {
        if (t.pass == Pass::Forward && t.chunk > 0)
          now = std::max(now, arrival(Pass::Forward, t.micro_batch, t.chunk - 1, rank));
        if (t.pass == Pass::Backward && t.chunk + 1 < s.chunks)
          now = std::max(now, arrival(Pass::Backward, t.micro_batch, t.chunk + 1, rank));
        const ChunkTimes& of = times[size_t(t.chunk)];
        const double takes = t.pass == Pass::Forward ? of.forward : of.backward;
        list.push_back({now, now + takes});
        now += takes, busy += takes;
        changed = changed || end[s.index(t)] != now;
        end[s.index(t)] = now;
      }
      r.seconds = std::max(r.seconds, now);
    }
    r.bubble = 1 - busy / (r.seconds * double(s.ranks()));
  }
  for (const std::vector<Task>& list : s.of_rank) {
    int64_t now = 0, most = 0;
    for (const Task& t : list) most = std::max(most, now += t.pass == Pass::Forward ? 1 : -1);
    r.in_flight.push_back(most);
  }
  return r;
}

void expect_played(const std::string& name, const Schedule& s, const std::vector<ChunkTimes>& times,
                   const std::vector<double>& links) {
  const Timeline t = play(s, times, links);
  ASSERT_EQ(t.problem, "") << name;
  const Simulated expected = simulate(s, times, links);
  EXPECT_NEAR(t.seconds, expected.seconds, 1e-9) << name;
  EXPECT_NEAR(t.bubble, expected.bubble, 1e-12) << name;
  EXPECT_EQ(t.in_flight, expected.in_flight) << name;
  ASSERT_EQ(t.of_rank.size(), s.of_rank.size()) << name;
  for (size_t rank = 0; rank < s.of_rank.size(); ++rank) {
    ASSERT_EQ(t.of_rank[rank].size(), s.of_rank[rank].size()) << name;
    for (size_t i = 0; i < s.of_rank[rank].size(); ++i) {
      ASSERT_EQ(t.of_rank[rank][i].task, s.of_rank[rank][i]) << name;
      ASSERT_NEAR(t.of_rank[rank][i].begin, expected.of_rank[rank][i].first, 1e-9) << name;
      ASSERT_NEAR(t.of_rank[rank][i].end, expected.of_rank[rank][i].second, 1e-9) << name;
    }
  }
}

TEST(L20_Schedules, GeneratedOnesArePlayedAsSimulatedWithAnyTimesAndLink) {
  Rng rng(1, 2);
  for (const auto& [name, s] : generated(6, 6))
    for (const double longest : {0.0, 0.25, 3.0}) {
      std::vector<double> links;
      for (int64_t rank = 0; s.ranks() > 1 && rank < s.ranks(); ++rank)
        links.push_back(longest * double(rng.below(4)) / 3);
      expect_played(name, s, random_times(rng, s.chunks), links);
      std::vector<ChunkTimes> zeros(size_t(s.chunks), {0, 0});
      zeros.back() = {1, 0};
      expect_played(name, s, zeros, links);
    }
}

// The tasks of a generated schedule in a different order, as far as it can run.
TEST(L20_Schedules, ReorderedOnesArePlayedAsSimulated) {
  Rng rng(1, 3);
  int64_t played = 0, stopped = 0;
  for (const auto& [name, s] : generated(4, 4))
    for (int k = 0; k < 20; ++k) {
      Schedule other = s;
      for (std::vector<Task>& list : other.of_rank)
        for (size_t i = 0; i + 1 < list.size(); ++i)
          if (rng.below(3) == 0) std::swap(list[i], list[i + 1]);
      const std::vector<ChunkTimes> times = random_times(rng, s.chunks);
      if (!play(other, times).problem.empty()) {
        ++stopped;
        continue;
      }
      ++played;
      expect_played(name + ", reordered", other, times,
                    std::vector<double>(s.ranks() > 1 ? size_t(s.ranks()) : 0, 0.25));
    }
  EXPECT_GT(played, 300);
  EXPECT_GT(stopped, 100);
}

TEST(L20_Schedules, AOneRankPipelineWithSeveralChunksIsPlayedWithoutMessages) {
  const Schedule s = interleaved(1, 2, 3);
  const Timeline t = play(s, std::vector<ChunkTimes>(3, {1, 2}));
  ASSERT_EQ(t.problem, "");
  EXPECT_EQ(t.seconds, 2 * 3 * 3.);
  EXPECT_EQ(t.bubble, 0);
}

TEST(L20_Schedules, TimesOfADifferentNumberOfChunksAreRefused) {
  for (const size_t wrong : {0u, 1u, 3u}) {
    const std::vector<ChunkTimes> times(wrong, ChunkTimes{});
    expect_refused("2", [&] { play(gpipe(2, 2), times); });
  }
}

TEST(L20_Schedules, LinksOfADifferentNumberOfRanksAreRefused) {
  for (const size_t wrong : {1u, 3u})
    expect_refused("links",
                   [&] { play(gpipe(2, 2), std::vector<ChunkTimes>(2), std::vector<double>(wrong)); });
  expect_refused("links", [] { play(gpipe(1, 2), std::vector<ChunkTimes>(1), {0.5}); });
}

TEST(L20_Schedules, BackwardBeforeTheNextChunksBackwardIsADeadlockAlsoOnOneRank) {
  Schedule s = interleaved(1, 1, 2);
  ASSERT_EQ(s.of_rank[0].size(), 4u);
  std::swap(s.of_rank[0][2], s.of_rank[0][3]);
  EXPECT_NE(play(s, std::vector<ChunkTimes>(2)).problem, "");
}

}  // namespace
}  // namespace gradus
