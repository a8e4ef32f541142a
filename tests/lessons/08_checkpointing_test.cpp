// Lesson 08's formulas for policies, chains and budgets, compared with the meter's counts.
#include <gtest/gtest.h>

#include "lessons/08_checkpointing/budget.h"
#include "lessons/08_checkpointing/chain.h"
#include "src/core/rng.h"
#include "src/train/dummy.h"
#include "tests/lessons/published_testing.h"
#include "tests/mistakes.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TransformerConfig model(int64_t layers, double dropout = 0.1) {
  return {.vocab = 24, .context = 24, .layers = layers, .heads = 3, .channels = 12, .dropout = dropout};
}

Counted counted(TransformerConfig c, int64_t B, int64_t T, const Policy& p) {
  c.context = T;
  return count_on_meta(c, B, p);
}

// A policy with random segments.
Policy random_policy(int64_t L, uint64_t seed) {
  Rng rng(8, seed);
  Policy p{"random", {}};
  for (int64_t left = L; left > 0; left -= p.segments.back().blocks)
    p.segments.push_back({1 + int64_t(rng.below(uint64_t(left))), Keep(rng.below(3))});
  return p;
}

// In `tokens`, sequences are so long that the probabilities are larger than all other saved tensors of a
// block. In `words`, the vocabulary is so large that the logits are larger than the saved tensors of a block.
// So each term of the maxima is the largest one in some model.
TEST(L08_Formulas, AreWhatTheMeterCounts) {
  TransformerConfig words = model(3), tokens = model(3);
  words.vocab = 1000, tokens.heads = 6, tokens.channels = 6;
  const struct {
    TransformerConfig c;
    int64_t B, T;
  } models[] = {{model(1), 1, 1},     {model(2, 0), 3, 7}, {model(5), 2, 24},
                {model(9, 0), 1, 16}, {words, 2, 24},      {tokens, 2, 64}};
  for (const auto& [c, B, T] : models) {
    const Sizes sizes{c, B, T};
    std::vector<Policy> all = policies(c.layers);
    all.push_back({"", {{c.layers, Keep::LessAttention}}});
    for (uint64_t seed = 0; seed < 12; ++seed) all.push_back(random_policy(c.layers, seed));
    for (const Policy& p : all) {
      const Counted is = counted(c, B, T, p);
      const std::string what = p.name + " " + text_of(p) + ", L " + std::to_string(c.layers);
      EXPECT_EQ(saved_bytes(p, sizes), is.saved) << what;
      EXPECT_EQ(peak_activations(p, sizes), is.most) << what;
    }
  }
}

// For models of all families, all bytes follow from two numbers: the bytes that a block saves with store-all,
// and the bytes of its input.
TEST(L08_Formulas, BytesOfAllFamiliesFollowFromWhatABlockSaves) {
  for (const char* family : {"gpt2", "bert-base", "polyglot-ko-1.3b"}) {
    TransformerConfig c = transformer_config(family);
    c.vocab = 31, c.context = 8, c.layers = 4, c.heads = 2, c.channels = 16, c.dropout = 0.1;
    if (c.rotary > 0) c.rotary = 4;
    if (c.output_head == OutputHead::Pooled) c.labels = 2;
    const int64_t B = 3, T = 8, input = 4 * B * T * c.channels, probs = 4 * B * c.heads * T * T;
    // BERT's norm of the embeddings is in no segment; it saves its input and two numbers per token.
    const int64_t front = c.residual == Residual::PostNorm ? input + 8 * B * T : 0;
    const Policy all{"all", {}};
    TransformerConfig less = c;
    less.layers = 3;
    const int64_t saved = counted(c, B, T, all).saved, block = saved - counted(less, B, T, all).saved,
                  tail = saved - 4 * block - front;
    const auto expect = [&](const Policy& p, int64_t kept, int64_t most) {
      const Counted is = counted(c, B, T, p);
      EXPECT_EQ(is.saved, front + kept + tail) << family << " " << text_of(p);
      EXPECT_EQ(is.most, front + std::max(kept + tail, most)) << family << " " << text_of(p);
    };
    expect(all, 4 * block, 4 * block);
    expect({"", every(1, 4)}, 4 * input, 3 * input + block);
    expect({"", every(2, 4)}, 2 * input, input + 2 * block);
    expect({"", every(3, 4)}, 2 * input, std::max(3 * block, input + block));
    expect({"", every(4, 4)}, input, 4 * block);
    expect({"", {{4, Keep::LessAttention}}}, 4 * (block - probs), 0);
    expect({"", {{1, Keep::All}, {2, Keep::Input}, {1, Keep::LessAttention}}},
           block + input + (block - probs), 3 * block);
    expect({"from-the-start", {}, true}, input, input + block);
  }
}

TEST(L08_Formulas, RecomputedFlops) {
  RecordProperty("exercise", "08.3");
  const double cost = cost_of({3, Keep::Input}, {.block = 100, .tail = 15, .attention = 11});
  EXPECT_EQ(cost, 285) << usual_mistake(
      {{cost == 300, "the last block of a segment is recomputed to its end: does anything need its output?"},
       {cost == 255,
        "each block of a segment stops early: what do the later blocks need from the earlier ones?"}});
  for (const double dropout : {0.0, 0.1})
    for (const int64_t L : {1, 2, 7}) {
      const TransformerConfig c = model(L, dropout);
      const Sizes sizes{c, 2, 24};
      std::vector<Policy> all{{"store-all", {}},
                              {"from-the-start", {}, true},
                              {"selective", {{L, Keep::LessAttention}}},
                              {"one segment", {{L, Keep::Input}}}};
      for (uint64_t seed = 0; seed < 12; ++seed) all.push_back(random_policy(L, seed));
      const int64_t kept = counted(c, 2, 24, all.front()).flops;
      for (const Policy& p : all)
        EXPECT_EQ(int64_t(extra_cost(p, flops_of(sizes), L)), counted(c, 2, 24, p).flops - kept)
            << text_of(p) << ", L " << L << ", F " << sizes.forward_flops() << ", E " << sizes.tail_flops();
    }
}

TEST(L08_Policies, SegmentsOfKBlocks) {
  RecordProperty("exercise", "08.2");
  const std::string of_seven = text_of({"", every(3, 7)});
  EXPECT_EQ(of_seven, "[3], [3], [1]") << usual_mistake(
      {{of_seven == "[3], [3]",
        "the last of 7 blocks is in no segment: which segment takes the blocks that are left?"},
       {of_seven == "[3], [3], [3]", "the last segment has 3 blocks, but only one is left for it"},
       {of_seven == "[3], [2], [2]",
        "7 blocks are cut into 3 segments; they should be cut into segments of 3 blocks"}});
  for (int64_t L = 1; L <= 12; ++L)
    for (int64_t k = 1; k <= 13; ++k) {
      const std::vector<BlockSegment> segments = every(k, L);
      ASSERT_EQ(int64_t(segments.size()), (L + k - 1) / k) << "k " << k << ", L " << L;
      int64_t blocks = 0;
      for (size_t i = 0; i < segments.size(); ++i) {
        EXPECT_EQ(segments[i].keep, Keep::Input);
        if (i + 1 < segments.size()) {
          EXPECT_EQ(segments[i].blocks, k);
        }
        blocks += segments[i].blocks;
      }
      ASSERT_EQ(blocks, L) << text_of({"", segments}) << ", k " << k;
    }
}

TEST(L08_Policies, HaveNames) {
  for (const Policy& p : policies(9)) EXPECT_EQ(text_of(policy_by_name(p.name, 9)), text_of(p));
  EXPECT_EQ(text_of(policy_by_name("every-4", 9)), "[4], [4], [1]");
  EXPECT_EQ(text_of(policy_by_name("sqrt", 9)), "[3], [3], [3]");
  EXPECT_EQ(text_of(policy_by_name("sqrt", 7)), "[3], [3], [1]") << "the square root, rounded";
  EXPECT_EQ(text_of({"x", {{1, Keep::All}, {2, Keep::All}, {1, Keep::Input}, {3, Keep::LessAttention}}}),
            "3 store-all, [1], 3 selective");
  expect_refused("the nearest is selective", [] { policy_by_name("selectiv", 4); });
  expect_refused("the model has 4 blocks", [] { policy_by_name("every-5", 4); });
  for (const char* wrong : {"every-", "every-0", "every--1", "every-2x", "every", ""})
    expect_refused("is unknown", [&] { policy_by_name(wrong, 4); });
}

TEST(L08_Policies, ValuesThatDifferBitwise) {
  EXPECT_EQ(differing_values({1, 2, 3}, {1, 2, 3}), 0);
  EXPECT_EQ(differing_values({1, 2, 3}, {1, 2.5, 4}), 2);
  EXPECT_EQ(differing_values({0.0}, {-0.0}), 1);
  EXPECT_EQ(differing_values({NAN}, {NAN}), 0);
  EXPECT_EQ(differing_values({1, 2}, {1}), 2);
  EXPECT_EQ(differing_values({1}, {1, 2}), 2);
}

// All saved: n + 1. From the start: 4. With segments: the inputs of the segments so far, the values of one
// segment, and a gradient.
TEST(L08_Chain, LiveValues) {
  for (const int64_t n : {4, 5, 9, 16}) {
    EXPECT_EQ(live_values({n, {}}), n + 1);
    EXPECT_EQ(live_values({n, {}, true}), 4);
    for (const int64_t k : {2, 3, 4}) {
      const std::vector<int64_t> segments = segments_of(n, k);
      int64_t most = 0;
      for (size_t i = 0; i < segments.size(); ++i) most = std::max(most, int64_t(i) + segments[i] + 1);
      EXPECT_EQ(live_values({n, segments}), most) << n << " in " << k;
      EXPECT_EQ(activation_bytes({n, segments}, 4096), 4096 * (most - 1)) << n << " in " << k;
    }
  }
  expect_refused("the segments have 3 steps", [] { live_values({5, {1, 2}}); });
}

TEST(L08_Budget, NoPolicyIsCheaperThanTheBest) {
  RecordProperty("exercise", "08.5");
  for (const int64_t L : {1, 2, 4, 6}) {
    const TransformerConfig c = model(L);
    const Sizes sizes{c, 2, 24};
    // The costs of a block, of its last operations and of its attention. With the second costs, recomputing
    // attention is expensive.
    for (const auto& [block, tail, attention] : {std::tuple(100.0, 15.0, 11.0), {10, 1, 9}, {10, 9, 0.1}}) {
      const CostOf cost = [=](const BlockSegment& g) {
        const double all[] = {0, double(g.blocks) * attention, double(g.blocks) * block - tail};
        return all[int(g.keep)];
      };
      const int64_t most = L * sizes.all() + sizes.tail();
      for (int i = 0; i <= 24; ++i) {
        const int64_t budget = most * i / 24;
        const std::optional<Policy> best = best_policy(sizes, cost, budget),
                                    brute = best_by_brute_force(sizes, cost, budget);
        int64_t blocks = 0;
        for (size_t g = 0; best && g < best->segments.size(); ++g) blocks += best->segments[g].blocks;
        if (best) {
          EXPECT_LE(peak_activations(*best, sizes), budget)
              << text_of(*best)
              << usual_mistake({{blocks == L && saved_bytes(*best, sizes) <= budget,
                                 "the saved bytes of the policy are within the budget, but its peak is not: "
                                 "does it count the bytes that are alive while a segment is recomputed?"},
                                {blocks == L && saved_bytes(*best, sizes) > budget,
                                 "the policy saves more bytes than its budget: are the bytes that earlier "
                                 "segments save added up?"}});
        }
        if (brute) {
          ASSERT_TRUE(best) << "L " << L << ", budget " << budget;
          EXPECT_NEAR(extra_cost(*best, cost, L), extra_cost(*brute, cost, L), 1e-9 * block * double(L));
        } else if (best) {
          EXPECT_TRUE(best->from_the_start) << text_of(*best) << ", L " << L << ", budget " << budget;
        }
      }
    }
  }
}

TEST(L08_Budget, TheFrontFallsInMemoryAndRisesInCost) {
  const TransformerConfig c = model(6);
  const Sizes sizes{c, 2, 24};
  const CostOf cost = flops_of(sizes);
  const std::vector<Policy> front = pareto_front(sizes, cost);
  ASSERT_GE(front.size(), 4u);
  EXPECT_EQ(extra_cost(front.front(), cost, 6), 0);
  EXPECT_TRUE(front.back().from_the_start);
  for (size_t i = 1; i < front.size(); ++i) {
    EXPECT_LT(peak_activations(front[i], sizes), peak_activations(front[i - 1], sizes));
    EXPECT_GE(extra_cost(front[i], cost, 6), extra_cost(front[i - 1], cost, 6));
  }
  expect_refused("at most 10", [&] { best_by_brute_force({model(11), 1, 1}, cost, 1); });
}

TEST(L08_Budget, TheFastestThatFits) {
  const TransformerConfig c{.vocab = 64, .context = 128, .layers = 6, .heads = 4, .channels = 64};
  testing::internal::CaptureStdout();
  EXPECT_EQ(text_of(fastest_that_fits(c, 8, int64_t(1) << 30)), "6 store-all");
  const Policy less = fastest_that_fits(c, 8, int64_t(60) << 20);
  testing::internal::GetCapturedStdout();
  EXPECT_NE(text_of(less), "6 store-all");
  expect_refused("from-the-start needs least, ", [&] { fastest_that_fits(c, 8, 1 << 20); });
}

// Reference numbers, 4.3, in MiB.
TEST(L08_PublishedRuns, BertLargeWithCheckpointing) {
  const PublishedRuns runs = published_checkpointing();
  expect_figures(runs, {8'681, 6'775});
  expect_taken_apart(runs.gap, runs.figures[1]);
}

}  // namespace
}  // namespace gradus
