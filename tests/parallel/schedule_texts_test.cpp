// Schedules as text (src/parallel/schedule.h), and how blocks are cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/core/rng.h"
#include "src/parallel/schedule.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L20_ScheduleTexts, GeneratedSchedulesAreReadAsTheyWereWritten) {
  for (int64_t p = 1; p <= 5; ++p)
    for (int64_t m = 1; m <= 12; ++m)
      for (int64_t v = 1; v <= 3; ++v)
        for (const Schedule& s :
             {gpipe(p, m), one_forward_one_backward(p, m), interleaved(p, m % p == 0 ? m : m * p, v)}) {
          const Schedule again = schedule_of_text(text_of(s));
          ASSERT_EQ(again.of_rank, s.of_rank) << text_of(s);
          ASSERT_EQ(again.chunks, s.chunks) << text_of(s);
          ASSERT_EQ(again.micro_batches, s.micro_batches) << text_of(s);
          ASSERT_EQ(text_of(again), text_of(s));
        }
}

TEST(L20_ScheduleTexts, TheChunkIsWrittenUnlessItIsTheRanksNumber) {
  EXPECT_EQ(text_of({Pass::Forward, 3, 1}, 1), "F3");
  EXPECT_EQ(text_of({Pass::Backward, 3, 6}, 2), "B3.6");
  EXPECT_EQ(text_of({Pass::Forward, 12, 0}, 1), "F12.0");
  EXPECT_EQ(text_of(interleaved(1, 1, 2)), "F0 F0.1 B0.1 B0\n");
  EXPECT_EQ(schedule_of_text("F0.0 B0.0\nF0.1 B0.1\n").of_rank, gpipe(2, 1).of_rank);
}

TEST(L20_ScheduleTexts, EmptyLinesTabsCommentsAndALastLineWithoutItsEndDoNotMatter) {
  const Schedule expected = one_forward_one_backward(2, 2);
  for (const char* text :
       {"F0 F1 B0 B1\nF0 B0 F1 B1", "\n\nF0 F1 B0 B1\n\n \t \nF0 B0 F1 B1\n\n",
        "\tF0\tF1  B0 B1 \nF0 B0 F1 B1\t\n", "# F9\nF0 F1 B0 B1#F2\n#\nF0 B0 F1 B1 # B7"}) {
    EXPECT_EQ(schedule_of_text(text).of_rank, expected.of_rank) << text;
    EXPECT_EQ(schedule_of_text(text).micro_batches, 2) << text;
    EXPECT_EQ(schedule_of_text(text).chunks, 2) << text;
  }
}

TEST(L20_ScheduleTexts, LinesThatEndAsOnWindowsAreReadOrRefused) {
  const std::string text =
      refusal([] { EXPECT_EQ(schedule_of_text("F0 B0\r\n\r\nF0 B0\r\n").of_rank, gpipe(2, 1).of_rank); });
  EXPECT_TRUE(text.empty() || text.find("is not a task") != std::string::npos) << text;
}

TEST(L20_ScheduleTexts, WhatIsNoTaskIsNamed) {
  for (const char* word : {"f0",
                           "b0",
                           "F",
                           "B",
                           "0",
                           "F.",
                           "F.1",
                           "F1.",
                           "F1.2.3",
                           "F1,2",
                           "F+1",
                           "F-1",
                           "F0x1",
                           "F1e3",
                           "F0.-1",
                           "F0.+1",
                           "FF0",
                           "F0F1",
                           "F0;",
                           "G1",
                           "F99999999999999999999",
                           "B0.99999999999999999999",
                           "F9223372036854775808"})
    expect_refused("'" + std::string(word) + "' is not a task",
                   [&] { schedule_of_text("F0 B0\nF0 " + std::string(word) + " B0\n"); });
  for (const char* text : {"", "\n", "   ", "#", "# F0 B0"})
    expect_refused("there is no task", [&] { schedule_of_text(text); });
}

// Missing tasks must need no memory.
TEST(L20_ScheduleTexts, HugeNumbersAreRefusedOrHaveAProblem) {
  for (const char* text :
       {"F1000000000000 B1000000000000\n", "F0.1000000000000 B0.1000000000000\n", "F9223372036854775807\n",
        "F0.9223372036854775807\n", "F0 B0 F0.9223372036854775807\nF0\n", "F3000000000.3000000000 B0\n",
        "F4294967296 B4294967296\n", "F0.4294967296 B0\n"}) {
    std::string problem;
    try {
      const Schedule s = schedule_of_text(text);
      ASSERT_LT(s.chunks, 1 << 20) << text << ": play() would need times of this many chunks";
      problem = play(s, std::vector<ChunkTimes>(size_t(s.chunks))).problem;
    } catch (const Error& e) {
      problem = e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << text << e.what() << ", which is not a message of gradus";
    }
    EXPECT_NE(problem, "") << text;
  }
}

TEST(L20_ScheduleTexts, RandomTextsAreReadOrRefusedByASentence) {
  Rng rng(4, 9);
  const std::string letters = "FB0123.# \n\tF0B1";
  int64_t read = 0;
  for (int k = 0; k < 20'000; ++k) {
    std::string text;
    for (uint64_t n = rng.below(14); n > 0; --n) text += letters[size_t(rng.below(letters.size()))];
    try {
      const Schedule s = schedule_of_text(text);
      const std::string problem = play(s, std::vector<ChunkTimes>(size_t(s.chunks))).problem;
      ++read;
      EXPECT_EQ(schedule_of_text(text_of(s)).of_rank, s.of_rank) << text;
      if (problem.empty()) {
        for (const std::vector<Task>& list : s.of_rank)
          EXPECT_EQ(int64_t(list.size()), 2 * s.micro_batches * s.chunks / s.ranks()) << text;
      }
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()), "") << text;
    }
  }
  EXPECT_GT(read, 500);
}

TEST(L20_ScheduleTexts, ASingleWrongTaskOfAScheduleIsNamed) {
  const auto problem = [](Schedule s) { return play(s, std::vector<ChunkTimes>(size_t(s.chunks))).problem; };
  for (const Schedule& s : {gpipe(3, 2), one_forward_one_backward(2, 3), interleaved(2, 2, 2)})
    for (size_t rank = 0; rank < s.of_rank.size(); ++rank)
      for (size_t i = 0; i < s.of_rank[rank].size(); ++i) {
        const Task t = s.of_rank[rank][i];
        const std::string begins = "rank " + std::to_string(rank) + ": ", name = text_of(t, int64_t(rank));
        Schedule missing = s, twice = s, elsewhere = s;
        missing.of_rank[rank].erase(missing.of_rank[rank].begin() + int64_t(i));
        twice.of_rank[rank].push_back(t);
        elsewhere.of_rank[rank].erase(elsewhere.of_rank[rank].begin() + int64_t(i));
        elsewhere.of_rank[(rank + 1) % s.of_rank.size()].push_back(t);
        EXPECT_EQ(problem(missing).substr(0, begins.size()), begins) << problem(missing);
        const std::string number = name.substr(1);  // of a backward pass that lacks its forward pass
        EXPECT_TRUE(problem(missing).find(name) != std::string::npos ||
                    problem(missing).find("B" + number + " comes before the forward pass") !=
                        std::string::npos)
            << problem(missing) << ", without " << name;
        EXPECT_EQ(problem(twice), begins + name + " is listed twice");
        EXPECT_NE(problem(elsewhere), "") << name << " on a different rank";
      }
}

// ---- cuts ----

double largest_cost(const std::vector<double>& costs, double before, double behind,
                    const std::vector<int64_t>& ends) {
  double most = 0;
  int64_t from = 0;
  for (const int64_t end : ends) {
    double sum = std::accumulate(costs.begin() + from, costs.begin() + end, 0.0);
    sum += (from == 0 ? before : 0) + (end == int64_t(costs.size()) ? behind : 0);
    most = std::max(most, sum), from = end;
  }
  return most;
}
void expect_cut(const std::vector<int64_t>& ends, int64_t blocks, int64_t chunks) {
  ASSERT_EQ(int64_t(ends.size()), chunks);
  EXPECT_EQ(ends.back(), blocks);
  for (size_t i = 0; i < ends.size(); ++i) EXPECT_GT(ends[i], i == 0 ? 0 : ends[i - 1]);
}
double best_of_all(const std::vector<double>& costs, double before, double behind, int64_t chunks) {
  const auto L = int64_t(costs.size());
  double best = INFINITY;
  for (uint64_t bits = 0; bits < (1u << (L - 1)); ++bits) {
    std::vector<int64_t> ends;
    for (int64_t l = 1; l < L; ++l)
      if (bits >> (l - 1) & 1) ends.push_back(l);
    ends.push_back(L);
    if (int64_t(ends.size()) == chunks) best = std::min(best, largest_cost(costs, before, behind, ends));
  }
  return best;
}

TEST(L20_Cuts, TiesAndZerosAreCutAsWellAsCanBe) {
  for (int64_t L = 1; L <= 5; ++L)
    for (int64_t code = 0, codes = int64_t(std::pow(3, L + 2)); code < codes; ++code) {
      std::vector<double> costs;
      int64_t left = code;
      for (int64_t l = 0; l < L + 2; ++l, left /= 3) costs.push_back(double(left % 3) * (l % 2 ? 1 : 1.5));
      const double before = costs[size_t(L)], behind = costs[size_t(L + 1)];
      costs.resize(size_t(L));
      for (int64_t chunks = 1; chunks <= L; ++chunks) {
        const std::vector<int64_t> ends = cut_blocks(costs, before, behind, chunks);
        expect_cut(ends, L, chunks);
        ASSERT_NEAR(largest_cost(costs, before, behind, ends), best_of_all(costs, before, behind, chunks),
                    1e-12)
            << L << " blocks, " << chunks << " chunks, code " << code;
      }
    }
}

TEST(L20_Cuts, EvenOnesHaveTheLeastLargestChunk) {
  for (int64_t L = 1; L <= 24; ++L)
    for (int64_t chunks = 1; chunks <= L; ++chunks) {
      const std::vector<int64_t> ends = even_cuts(L, chunks);
      expect_cut(ends, L, chunks);
      EXPECT_EQ(largest_cost(std::vector<double>(size_t(L), 1), 0, 0, ends),
                double((L + chunks - 1) / chunks));
      for (int64_t i = 0; i < chunks && L % chunks == 0; ++i)
        EXPECT_EQ(ends[size_t(i)], (i + 1) * L / chunks);
    }
}

TEST(L20_Cuts, WhatCannotBeCutIsRefused) {
  expect_refused("3 blocks cannot be cut into 4 chunks", [] { even_cuts(3, 4); });
  expect_refused("", [] { even_cuts(3, 0); });
  expect_refused("", [] { even_cuts(3, -1); });
  expect_refused("", [] { even_cuts(0, 1); });
  expect_refused("", [] { cut_blocks({}, 1, 1, 1); });
  expect_refused("", [] { cut_blocks({1, 2}, 1, 1, 0); });
}

}  // namespace
}  // namespace gradus
