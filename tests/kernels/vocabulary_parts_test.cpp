// Ids and targets of a vocabulary that is sharded across ranks: the ids of a part, and the kernels that get
// kElsewhere.
#include "tests/kernels/vocabulary_parts_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L19_LocalIds);
ON_EVERY_DEVICE(L19_EmbeddingOfParts);
ON_EVERY_DEVICE(L19_TargetsElsewhere);

// -1 and ids from all of [0, all), including those at both ends of each part.
TEST_P(L19_LocalIds, SizesOnBothSidesOfABlockAndPartsAnywhere) {
  for (const int64_t n : {0, 1, 7, 31, 32, 33, 255, 256, 257, 1000})
    for (const int64_t all : {1, 7, 300})
      for (const IdRange& part : {IdRange{0, 0},
                                  {0, all},
                                  {0, all / 2},
                                  {all / 2, all - all / 2},
                                  {all - 1, 1},
                                  {all, 0},
                                  {all / 3, all / 3}}) {
        Ids ids(n);
        for (int64_t i = 0; i < n; ++i) ids[i] = i % 5 == 4 ? -1 : int32_t(i * 11 % all);
        const Ids before = ids, local = local_ids(ids, all, part);
        ASSERT_EQ(ids, before);
        for (int64_t i = 0; i < n; ++i) {
          numbers_seen.push_back(local[i]);
          ASSERT_EQ(local[i], expected_id(ids[i], part))
              << "id " << ids[i] << " in the part of " << part.count << " ids from " << part.first;
        }
      }
}
TEST_P(L19_LocalIds, AnIdOutOfRangeIsNamed) {
  if (on_cuda()) GTEST_SKIP() << "a GPU prints the message and then does no more work for this process";
  for (const int32_t bad : {5, 6, kElsewhere, -3, INT32_MAX, INT32_MIN})
    for (const IdRange& part : {IdRange{0, 5}, {2, 2}}) {
      const std::string text = refusal([&] { local_ids({4, bad, -1}, 5, part); });
      const std::string end = table().name == std::string("cpu")
                                  ? " at 1 is not one of 5"
                                  : " is neither in the vocabulary nor -1; see 1";
      EXPECT_EQ(text, "local_ids: id " + std::to_string(bad) + end);
    }
}
TEST_P(L19_LocalIds, NothingIsAddedToIds) {
  Ids ids(3, 0);
  TestCtx ctx;
  expect_refused("local_ids: ids are replaced; Write::Add has no meaning here", [&] {
    table().local_ids(ctx, 0, 5, 0, 5, in(ids), {ids.data(), DType::I32, Write::Add});
  });
}

// Every third id, or every id, is elsewhere. The table has 7 rows, or none if no id needs one.
TEST_P(L19_EmbeddingOfParts, AnIdElsewhereReadsZerosAndHasNoGradient) {
  for (const RowShape s : {RowShape{0, 7}, {1, 1}, {9, 7}, {33, 20}, {3, 300}, {3, 1030}, {257, 33}})
    for (const int64_t vocab : {7, 0}) {
      Ids ids(s.rows, kElsewhere);
      for (int64_t r = 0; vocab > 0 && r < s.rows; ++r)
        if (r % 3 != 1) ids[r] = int32_t(r * r % 13 % 4 * 2);
      for (const DType T : float_types()) {
        const Buffer w = Buffer::random(T, vocab * s.cols, 1), dy = Buffer::random(T, s.rows * s.cols, 2);
        const std::vector<double> vw = w.values(), vdy = dy.values();
        Expected y{"y", {T}, {}}, dw{"dtable", t_or_fp32(T), std::vector<double>(vocab * s.cols)};
        for (int64_t i = 0; i < s.rows * s.cols; ++i) {
          const int32_t id = ids[i / s.cols];
          const int64_t at = id * s.cols + i % s.cols;
          y.value.push_back(id < 0 ? 0 : vw[at]);
          if (id >= 0) dw.value[at] = rounded(stat(T), dw.value[at] + vdy[i]);
        }
        const TestedCall fwd{"embedding_fwd", {y}, [&](const Ctx& ctx, const std::vector<Out>& out) {
                               table().embedding_fwd(ctx, s, vocab, w.in(), in(ids), out[0]);
                             }};
        const TestedCall bwd{"embedding_bwd",
                             {dw},
                             [&](const Ctx& ctx, const std::vector<Out>& out) {
                               table().embedding_bwd(ctx, s, vocab, in(ids), dy.in(), out[0]);
                             },
                             cost::embedding_bwd(s, T)};
        for (const TestedCall& k : {fwd, bwd})
          ASSERT_NO_FATAL_FAILURE(expect_contract(k, all_ways(k.outputs)));
      }
    }
}

// In each row of y only one part is not 0, and each row of the table belongs to one part, so nothing is
// rounded.
TEST_P(L19_EmbeddingOfParts, PartsAddUpToTheWholeToTheBit) {
  constexpr int64_t kVocab = 11;
  constexpr RowShape s{40, 33};
  Ids ids(s.rows);
  for (int64_t r = 0; r < s.rows; ++r) ids[r] = int32_t(r * 7 % kVocab % 9);  // 9 and 10 do not occur
  for (const DType T : float_types()) {
    const Buffer w = Buffer::random(T, kVocab * s.cols, 1), dy = Buffer::random(T, s.rows * s.cols, 2);
    const auto run = [&](const std::vector<IdRange>& parts) {
      Buffer y = Buffer::zeros(T, s.rows * s.cols), dw = Buffer::zeros(T, kVocab * s.cols);
      TestCtx ctx(cost::embedding_bwd(s, T));
      for (const IdRange& part : parts) {
        const Ids local = local_ids(ids, kVocab, part);
        const int64_t at = part.first * s.cols;
        table().embedding_fwd(ctx, s, part.count, w.in().from(at), in(local), y.out(Write::Add));
        table().embedding_bwd(ctx, s, part.count, in(local), dy.in(), dw.out(Write::Set).from(at));
      }
      return std::pair(y.values(), dw.values());
    };
    const auto whole = run({{0, kVocab}});
    for (const std::vector<int64_t>& counts :
         {std::vector<int64_t>{11, 0}, {0, 4, 0, 7}, {1, 10}, std::vector<int64_t>(kVocab, 1)})
      EXPECT_EQ(run(ranges(counts)), whole) << counts.size() << " parts";
  }
}

constexpr RowShape kShapes[] = {{1, 1},   {7, 5},   {2, 31},  {2, 32},  {33, 33}, {3, 255},
                                {3, 256}, {3, 257}, {255, 3}, {257, 2}, {2, 2049}};

TEST_P(L19_TargetsElsewhere, CountInTheLossWithALogitOf0) {
  for (const DType T : float_types())
    for (const RowShape s : kShapes)
      for (const bool all_elsewhere : {false, true}) {
        if (all_elsewhere && s.rows > 40) continue;
        const Ids ids = some_targets(s, all_elsewhere);
        const Buffer logits = Buffer::random(T, s.rows * s.cols, 1, 3), count(stat(T), {12.5});
        const std::vector<double> x = logits.values();
        Expected loss{"loss", {stat(T)}, {0}, {0}}, lse{"lse", {stat(T)}, {}};
        for (int64_t r = 0; r < s.rows; ++r) {
          double sum = 0;
          for (int64_t c = 0; c < s.cols; ++c) sum += std::exp(x[r * s.cols + c]);
          lse.value.push_back(std::log(sum));
          lse.error.push_back(double(s.cols) + 32 + 2 * std::abs(lse.value[r]));
          if (ids[r] == -1) continue;
          const double value = lse.value[r] - (ids[r] == kElsewhere ? 0 : x[r * s.cols + ids[r]]);
          loss.value[0] += value / 12.5;
          loss.error[0] += (lse.error[r] + 16 * std::abs(value)) / 12.5;
        }
        const TestedCall fwd{"cross_entropy_fwd",
                             {loss, lse},
                             [&](const Ctx& ctx, const std::vector<Out>& out) {
                               table().cross_entropy_fwd(ctx, s, logits.in(), in(ids), count.in(), out[0],
                                                         out[1]);
                             },
                             cost::cross_entropy_fwd(s, T)};
        ASSERT_NO_FATAL_FAILURE(
            expect_contract(fwd, s.rows == 33 ? all_ways(fwd.outputs) : some_ways(fwd.outputs)));
      }
}
TEST_P(L19_TargetsElsewhere, HaveTheGradientOfTheirProbabilities) {
  for (const DType T : float_types())
    for (const RowShape s : kShapes)
      for (const bool all_elsewhere : {false, true}) {
        const Ids ids = some_targets(s, all_elsewhere);
        Buffer logits = Buffer::random(T, s.rows * s.cols, 1, 3);
        const Buffer lse(stat(T), std::vector<double>(s.rows, 4.1)), dloss(stat(T), {3.7}),
            count(stat(T), {12.5});
        const std::vector<double> x = logits.values();
        const double factor = dloss.values()[0] / 12.5, shift = s.rows > 0 ? lse.values()[0] : 0;
        Expected dx{"logits", {T}, {}};
        for (int64_t i = 0; i < s.rows * s.cols; ++i) {
          const int32_t target = ids[i / s.cols];
          const double p = target == -1 ? 0 : std::exp(x[i] - shift),
                       d = factor * (p - (target == i % s.cols));
          dx.value.push_back(d);
          dx.error.push_back(factor * p * (8 + std::abs(x[i] - shift)) + 4 * std::abs(d));
        }
        TestCtx ctx(cost::cross_entropy_bwd_inplace(s, T));
        const OpenMpThreads three(3);
        table().cross_entropy_bwd_inplace(ctx, s, in(ids), count.in(), lse.in(), dloss.in(),
                                          logits.out(Write::Set));
        ASSERT_NO_FATAL_FAILURE(
            expect_written("cross_entropy_bwd_inplace", dx, T, Write::Set, {}, logits.values()));
      }
}

TEST_P(L19_TargetsElsewhere, OfAPartWithoutColumnsTheLogSumExpIsMinusInfinity) {
  const Ids ids{kElsewhere, -1, kElsewhere};
  const Buffer nothing = Buffer::zeros(DType::F32, 0), one(DType::F32, {1});
  Buffer lse = Buffer::zeros(DType::F32, 3);
  TestCtx ctx(cost::cross_entropy_fwd({3, 0}, DType::F32));
  table().cross_entropy_fwd(ctx, {3, 0}, nothing.in(), in(ids), one.in(), {}, lse.out(Write::Set));
  EXPECT_EQ(lse.values(), std::vector<double>(3, -INFINITY));
  Buffer logits = nothing;
  table().cross_entropy_bwd_inplace(ctx, {3, 0}, in(ids), one.in(), lse.in(), one.in(),
                                    logits.out(Write::Set));
  EXPECT_TRUE(logits.values().empty());
}

TEST_P(L19_TargetsElsewhere, NeedACountAndOthersAreNamed) {
  if (on_cuda()) GTEST_SKIP() << "a GPU prints the message and then does no more work for this process";
  Buffer x = Buffer::random(DType::F32, 6, 1), lse = Buffer::zeros(DType::F32, 2), one(DType::F32, {1}),
         sums = Buffer::zeros(DType::F32, 4);
  TestCtx ctx(cost::cross_entropy_fwd({2, 3}, DType::F32));
  for (const int32_t bad : {kElsewhere, -3, 3}) {
    const Ids ids{0, bad};
    const std::string part = "target " + std::to_string(bad);
    for (const CBuf count : {CBuf{}, one.in()}) {
      if (bad == kElsewhere && count.p) continue;
      expect_refused(part, [&] {
        table().cross_entropy_fwd(ctx, {2, 3}, x.in(), in(ids), count, one.out(Write::Set),
                                  lse.out(Write::Set));
      });
      expect_refused(part, [&] {
        table().cross_entropy_bwd_inplace(ctx, {2, 3}, in(ids), count, lse.in(), one.in(), x.out(Write::Set));
      });
    }
  }
}

}  // namespace
}  // namespace gradus
