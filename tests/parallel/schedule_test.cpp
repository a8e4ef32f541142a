// Schedules of pipelines (src/parallel/schedule.h): what they cost, and that the checker knows which ones can
// run.
#include "src/parallel/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "src/core/rng.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/pipeline.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

std::vector<ChunkTimes> equal(int64_t chunks, double forward = 1, double backward = 2) {
  return std::vector<ChunkTimes>(size_t(chunks), {forward, backward});
}

TEST(L20_Schedule, BubblesAreThePublishedOnes) {
  for (const int64_t p : {1, 2, 4, 8})
    for (const int64_t m : {1, 2, 3, 4, 5, 8, 16, 32})
      for (const auto& [f, b] : {std::pair(1., 2.), {1., 1.}, {3., 5.}}) {
        const double expected = double(p - 1) / double(m + p - 1);
        for (const Schedule& s : {gpipe(p, m), one_forward_one_backward(p, m)}) {
          const Timeline t = play(s, equal(p, f, b));
          ASSERT_EQ(t.problem, "");
          EXPECT_NEAR(t.bubble, expected, 1e-12) << p << " ranks, " << m << " micro-batches";
          EXPECT_NEAR(t.seconds, double(m + p - 1) * (f + b), 1e-9);
        }
        for (const int64_t v : {1, 2, 4}) {
          if (m % p != 0) continue;
          const Timeline t = play(interleaved(p, m, v), equal(p * v, f, b));
          ASSERT_EQ(t.problem, "") << p << " " << m << " " << v;
          EXPECT_NEAR(t.bubble, double(p - 1) / double(m * v + p - 1), 1e-12)
              << p << " ranks, " << m << " micro-batches, " << v << " chunks per rank";
        }
      }
}

TEST(L20_Schedule, PassesInFlightAreThePublishedOnes) {
  for (const int64_t p : {1, 2, 4, 8})
    for (const int64_t m : {1, 2, 3, 4, 5, 8, 16, 32})
      for (int64_t s = 0; s < p; ++s) {
        const size_t rank = size_t(s);
        EXPECT_EQ(play(gpipe(p, m), equal(p)).in_flight[rank], m);
        EXPECT_EQ(play(one_forward_one_backward(p, m), equal(p)).in_flight[rank], std::min(m, p - s));
        for (const int64_t v : {2, 4}) {
          if (m % p != 0) continue;
          EXPECT_EQ(play(interleaved(p, m, v), equal(p * v)).in_flight[rank],
                    std::min(m * v, 2 * (p - s - 1) + (v - 1) * p + 1))
              << p << " " << m << " " << v << " " << s;
        }
      }
}

// The work of a rank does not matter here.
struct NoWork : PipelineWork {
  Tensor made() const { return {current().device, {1}, DType::F32, Kind::Temporary, "made"}; }
  Tensor forward(int64_t, int64_t, Tensor) override { return made(); }
  Tensor backward(int64_t, int64_t, Tensor) override { return made(); }
};

// In a different order on each rank; in most cases a backward pass comes after its forward pass.
Schedule random_schedule(Rng& rng, int64_t p, int64_t m, int64_t v) {
  Schedule s{p * v, m, {}};
  for (int64_t rank = 0; rank < p; ++rank) {
    std::vector<std::pair<double, Task>> order;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t own = 0; own < v; ++own) {
        const int64_t chunk = own * p + rank;
        const double forward = rng.uniform() + 0.1 * double(i), backward = forward + rng.uniform();
        order.push_back({forward, {Pass::Forward, i, chunk}});
        order.push_back({backward, {Pass::Backward, i, chunk}});
      }
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Task>& list = s.of_rank.emplace_back();
    for (const auto& [at, task] : order) list.push_back(task);
  }
  return s;
}

TEST(L20_Schedule, TheCheckerSaysExactlyWhichStop) {
  Rng rng(20, 0);
  int64_t stopped = 0;
  constexpr int64_t kSchedules = 10'000;
  for (int64_t k = 0; k < kSchedules; ++k) {
    const int64_t p = 2 + int64_t(rng.below(3)), m = 1 + int64_t(rng.below(4)), v = 1 + int64_t(rng.below(2));
    const Schedule s = random_schedule(rng, p, m, v);
    const Timeline t = play(s, equal(s.chunks));
    std::string error;
    try {
      run_cluster({.ranks = p, .device = "meta"}, [&](Comm& comm) {
        NoWork work;
        run_schedule(comm, s, {1}, DType::F32, work);
      });
    } catch (const Error& e) {
      error = e.what();
    }
    ASSERT_EQ(t.problem.empty(), error.empty()) << text_of(s) << t.problem << "\n" << error;
    if (!t.problem.empty()) {
      ++stopped;
      EXPECT_EQ(t.problem.substr(0, 9), "deadlock:") << t.problem;
    }
  }
  EXPECT_GE(stopped, kSchedules / 3);
  EXPECT_LE(stopped, kSchedules * 9 / 10);
  std::printf("%d of %d cannot run\n", int(stopped), int(kSchedules));
}

TEST(L20_Schedule, TextAndBack) {
  for (const Schedule& s : {gpipe(3, 4), one_forward_one_backward(4, 6), interleaved(2, 4, 3)}) {
    const Schedule again = schedule_of_text(text_of(s));
    EXPECT_EQ(again.of_rank, s.of_rank) << text_of(s);
    EXPECT_EQ(again.chunks, s.chunks);
    EXPECT_EQ(again.micro_batches, s.micro_batches);
  }
  EXPECT_EQ(text_of(one_forward_one_backward(2, 2)), "F0 F1 B0 B1\nF0 B0 F1 B1\n");
  EXPECT_EQ(schedule_of_text("# a comment\n\nF0 B0  # more\n\tF0.1 B0.1").of_rank.size(), 2u);
  expect_refused("'X0' is not a task", [] { schedule_of_text("X0"); });
  expect_refused("'F' is not a task", [] { schedule_of_text("F"); });
  expect_refused("'F1.' is not a task", [] { schedule_of_text("F1."); });
  expect_refused("'F-1' is not a task", [] { schedule_of_text("F-1"); });
  expect_refused("there is no task", [] { schedule_of_text("# nothing\n"); });
}

TEST(L20_Schedule, WhatCannotRunHasASentence) {
  const auto problem = [](const char* text) {
    const Schedule s = schedule_of_text(text);
    return play(s, equal(s.chunks)).problem;
  };
  EXPECT_EQ(problem("F0 B0\nF0 B0\n"), "");
  EXPECT_EQ(problem("F0 B0\nF0\n"), "rank 1: B0 is missing");
  EXPECT_EQ(problem("F0 B0\nF0 B0 B0\n"), "rank 1: B0 is listed twice");
  EXPECT_EQ(problem("B0 F0\nF0 B0\n"), "rank 0: B0 comes before the forward pass whose gradient it computes");
  EXPECT_EQ(problem("F0.1 B0.1\nF0 B0\n"),
            "rank 0: F0.1: the chunk is not on this rank; chunk c is on rank c % 2");
  EXPECT_EQ(
      problem("F0 B0 F1 B1\nF1 B1 F0 B0\n"),
      "deadlock: rank 0 is at B0 and waits for B0 of rank 1; rank 1 is at F1 and waits for F1 of rank 0");
}

TEST(L20_Schedule, BlocksAreCutSoThatTheLargestCostIsLeast) {
  EXPECT_EQ(cut_blocks({1, 1, 1, 1}, 0, 0, 2), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(cut_blocks({1, 1, 1, 1}, 0, 2, 2), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(cut_blocks({1, 1, 1, 1}, 2, 0, 2), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(cut_blocks({1, 1, 1}, 9, 9, 3), (std::vector<int64_t>{1, 2, 3}));
  expect_refused("2 blocks cannot be cut into 3 chunks", [] { cut_blocks({1, 1}, 0, 0, 3); });
  Rng rng(3, 0);
  for (int k = 0; k < 200; ++k) {
    const int64_t L = 1 + int64_t(rng.below(8)), chunks = 1 + int64_t(rng.below(uint64_t(L)));
    std::vector<double> costs;
    for (int64_t l = 0; l < L; ++l) costs.push_back(rng.uniform());
    const double before = rng.uniform(), behind = rng.uniform();
    const auto largest = [&](const std::vector<int64_t>& ends) {
      double most = 0;
      int64_t from = 0;
      for (const int64_t end : ends) {
        const double sum = std::accumulate(costs.begin() + from, costs.begin() + end, 0.0) +
                           (from == 0 ? before : 0) + (end == L ? behind : 0);
        most = end > from ? std::max(most, sum) : INFINITY, from = end;
      }
      return most;
    };
    double best = INFINITY;  // the best of all cuts
    for (uint64_t bits = 0; bits < (1u << (L - 1)); ++bits) {
      std::vector<int64_t> ends;
      for (int64_t l = 1; l < L; ++l)
        if (bits >> (l - 1) & 1) ends.push_back(l);
      ends.push_back(L);
      if (int64_t(ends.size()) == chunks) best = std::min(best, largest(ends));
    }
    EXPECT_NEAR(largest(cut_blocks(costs, before, behind, chunks)), best, 1e-12);
  }
}

}  // namespace
}  // namespace gradus
