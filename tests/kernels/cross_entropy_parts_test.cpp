// Cross-entropy of logits whose columns are sharded across ranks: each kernel against its formula in fp64,
// and all parts together against cross-entropy of the whole.
#include "tests/kernels/vocabulary_parts_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L19_CrossEntropySums);
ON_EVERY_DEVICE(L19_CrossEntropyOfSums);
ON_EVERY_DEVICE(L19_CrossEntropyOfParts);

// The log-sum-exps of this part are at most the largest ones. Some rows have only -infinity, in this part or
// in all parts; one row has NaN.
TEST_P(L19_CrossEntropySums, OfAPart) {
  for (const DType T : float_types())
    for (const RowShape s :
         {RowShape{0, 3}, {1, 1}, {7, 5}, {31, 2}, {33, 4}, {255, 1}, {256, 3}, {257, 3}}) {
      const Ids ids = some_targets(s);
      const Buffer logits = Buffer::random(T, s.rows * s.cols, 1, 3);
      std::vector<double> largest = Buffer::random(stat(T), s.rows, 2, 9).values(), part = largest;
      for (int64_t r = 0; r < s.rows; ++r) {
        part[r] -= r % 3 * 7.3;
        if (r % 8 == 5) part[r] = -INFINITY;
        if (r % 16 == 5) largest[r] = -INFINITY;
        if (r == 30) part[r] = largest[r] = NAN;
      }
      const Buffer part_lse(stat(T), part), max(stat(T), largest);
      const std::vector<double> x = logits.values(), vp = part_lse.values(), vm = max.values();
      Expected sums{"sums", {stat(T)}, {}, {}};
      for (int64_t r = 0; r < s.rows; ++r) {
        const bool nothing = vp[r] == -INFINITY;
        sums.value.push_back(nothing ? 0 : std::exp(vp[r] - vm[r]));
        sums.error.push_back(nothing ? 0 : sums.value[r] * (8 + 2 * std::abs(vp[r] - vm[r])) + 0x1p-98);
      }
      for (int64_t r = 0; r < s.rows; ++r) sums.value.push_back(ids[r] < 0 ? 0 : x[r * s.cols + ids[r]]);
      sums.error.resize(2 * s.rows, 0);
      const TestedCall call{"cross_entropy_sums",
                            {sums},
                            [&](const Ctx& ctx, const std::vector<Out>& out) {
                              table().cross_entropy_sums(ctx, s, logits.in(), in(ids), part_lse.in(),
                                                         max.in(), out[0]);
                            },
                            cost::cross_entropy_sums(s, T)};
      ASSERT_NO_FATAL_FAILURE(expect_contract(call, {{1}, {2}}));
    }
}

TEST_P(L19_CrossEntropySums, OfAPartWithoutColumnsAreZeros) {
  const Ids ids{kElsewhere, -1, kElsewhere};
  const Buffer part_lse(DType::F32, {-INFINITY, -INFINITY, -INFINITY}), max(DType::F32, {3, -2, -INFINITY});
  Buffer sums(DType::F32, std::vector<double>(6, NAN));
  TestCtx ctx;
  table().cross_entropy_sums(ctx, {3, 0}, {nullptr, DType::F32}, in(ids), part_lse.in(), max.in(),
                             sums.out(Write::Set));
  EXPECT_EQ(sums.values(), std::vector<double>(6, 0.0));
}

// With one rank the largest log-sum-exp is its own, so its sum is e^0 = 1, even if the log-sum-exp is large.
TEST_P(L19_CrossEntropySums, OfTheWholeAreOneAndTheLogit) {
  const Ids ids{1, 0, -1, 1};
  const Buffer logits(DType::F32, {1, 2, 1000, -1000, 3, 4, -1e30, 1e30}),
      lse(DType::F32, {2.3, 1000, -88, 1e30});
  Buffer sums(DType::F32, std::vector<double>(8, NAN));
  TestCtx ctx;
  table().cross_entropy_sums(ctx, {4, 2}, logits.in(), in(ids), lse.in(), lse.in(), sums.out(Write::Set));
  EXPECT_EQ(sums.values(), (std::vector<double>{1, 1, 1, 1, 2, 1000, 0, double(1e30f)}));
}

TEST_P(L19_CrossEntropySums, ATargetOutOfRangeIsNamed) {
  if (on_cuda()) GTEST_SKIP() << "a GPU prints the message and then does no more work for this process";
  const Buffer x = Buffer::random(DType::F32, 6, 1);
  Buffer sums = Buffer::zeros(DType::F32, 4);
  TestCtx ctx;
  for (const int32_t bad : {-3, 3}) {
    const Ids ids{0, bad};
    expect_refused("target " + std::to_string(bad), [&] {
      table().cross_entropy_sums(ctx, {2, 3}, x.in(), in(ids), x.in(), x.in(), sums.out(Write::Set));
    });
  }
}

TEST_P(L19_CrossEntropySums, ThatAreNotWantedAreSkipped) {
  const Ids ids{0, kElsewhere};
  const Buffer x = Buffer::random(DType::F32, 6, 1);
  TestCtx ctx;
  table().cross_entropy_sums(ctx, {2, 3}, x.in(), in(ids), x.in(), x.in(), {});
  wait_for_kernels();
}

// Random sums, and what cross_entropy_of_sums must compute from them.
struct OfSums {
  DType t;  // of statistics
  int64_t rows;
  const Ids& ids;
  double count;
  Buffer max = Buffer::random(t, rows, 1, 5), counts = Buffer(t, {count}), sums;
  Expected loss{"loss", {t}, {0}, {0}}, lse{"lse", {t}, {}};
  OfSums(DType t, int64_t rows, const Ids& ids, double count)
      : t(t), rows(rows), ids(ids), count(count), sums(Buffer::random(t, 2 * rows, 2, 4)) {
    std::vector<double> v = sums.values();
    for (int64_t r = 0; r < rows; ++r) v[r] = 1 + std::abs(v[r]);  // the largest part adds 1
    sums = Buffer(t, v), v = sums.values();
    const std::vector<double> m = max.values();
    for (int64_t r = 0; r < rows; ++r) {
      lse.value.push_back(m[r] + std::log(v[r]));
      lse.error.push_back(4 + 4 * std::abs(std::log(v[r])) + std::abs(lse.value[r]));
      if (ids[r] == -1) continue;
      const double value = lse.value[r] - v[rows + r];
      loss.value[0] += value / count;
      loss.error[0] += (lse.error[r] + 16 * std::abs(value)) / count;
    }
  }
  TestedCall call() const {
    return {"cross_entropy_of_sums",
            {loss, lse},
            [this](const Ctx& ctx, const std::vector<Out>& out) {
              table().cross_entropy_of_sums(ctx, rows, in(ids), counts.in(), max.in(), sums.in(), out[0],
                                            out[1]);
            },
            cost::cross_entropy_of_sums(rows, t)};
  }
};
std::vector<DType> stat_types() {
  if (turn.table == &cpu_backend()) return {DType::F64, DType::F32};
  return {DType::F32};
}

TEST_P(L19_CrossEntropyOfSums, EachOutputHasAWriteOfItsOwnAndCanBeLeftOut) {
  for (const DType t : stat_types())
    for (const int64_t rows : {0, 1, 7, 31, 32, 33, 255, 256, 257, 1025})
      for (const int64_t one_in : {1, 3, 2000}) {  // one of this many targets counts
        Ids ids(rows, -1);
        for (int64_t r = one_in - 1; r < rows; r += one_in) ids[r] = int32_t(r * 5);
        const OfSums of(t, rows, ids, 12.5);
        const TestedCall call = of.call();
        ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
      }
}

// The contract of cross-entropy says that a target that is kElsewhere counts.
TEST_P(L19_CrossEntropyOfSums, OfNoTargetThatCountsTheMeanIsNotANumber) {
  const Ids ids{-1, -1};
  const Buffer zero(DType::F32, {0}), five(DType::F32, {5}), max(DType::F32, {2, 3}),
      sums(DType::F32, {1, 1, 0, 0});
  Buffer loss = zero, lse = max;
  TestCtx ctx(cost::cross_entropy_of_sums(2, DType::F32));
  for (const bool of_none : {true, false}) {
    table().cross_entropy_of_sums(ctx, 2, in(ids), of_none ? zero.in() : five.in(), max.in(), sums.in(),
                                  loss.out(Write::Set), lse.out(Write::Set));
    EXPECT_EQ(std::isnan(loss.values()[0]), of_none);
    EXPECT_EQ(lse.values(), max.values());
  }
  EXPECT_EQ(loss.values()[0], 0);
}

// Cross-entropy of logits whose columns are divided into parts, and its gradient.
struct Result {
  std::vector<double> loss, lse, gradient;
};
struct Parts {
  DType T;
  RowShape s;
  Ids ids;
  std::vector<double> x;
  Buffer count = Buffer(stat(T), {double(s.rows) * 0.75 + 1}), dloss = Buffer(stat(T), {3.7});

  std::vector<double> columns(const IdRange& part) const {
    std::vector<double> y;
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t c = 0; c < part.count; ++c) y.push_back(x[r * s.cols + part.first + c]);
    return y;
  }
  Result gradient(const std::vector<IdRange>& parts, const Buffer& loss, const Buffer& lse,
                  bool whole) const {
    Result result{loss.values(), lse.values(), std::vector<double>(s.rows * s.cols)};
    for (const IdRange& part : parts) {
      const RowShape here{s.rows, part.count};
      Buffer dx(T, columns(part));
      TestCtx ctx(cost::cross_entropy_bwd_inplace(here, T));
      table().cross_entropy_bwd_inplace(ctx, here, in(whole ? ids : local_ids(ids, s.cols, part)), count.in(),
                                        lse.in(), dloss.in(), dx.out(Write::Set));
      const std::vector<double> got = dx.values();
      for (int64_t i = 0; i < s.rows * part.count; ++i)
        result.gradient[i / part.count * s.cols + part.first + i % part.count] = got[i];
    }
    return result;
  }
  Result whole() const {
    const Buffer logits(T, x);
    Buffer loss = Buffer::zeros(stat(T), 1), lse = Buffer::zeros(stat(T), s.rows);
    TestCtx ctx(cost::cross_entropy_fwd(s, T));
    table().cross_entropy_fwd(ctx, s, logits.in(), in(ids), count.in(), loss.out(Write::Set),
                              lse.out(Write::Set));
    return gradient({{0, s.cols}}, loss, lse, true);
  }
  Result of(const std::vector<IdRange>& parts) const {
    std::vector<Buffer> part_lse;
    std::vector<double> largest(s.rows, -INFINITY);
    for (const IdRange& part : parts) {
      const RowShape here{s.rows, part.count};
      const Buffer logits(T, columns(part));
      Buffer lse = Buffer::zeros(stat(T), s.rows);
      TestCtx ctx(cost::cross_entropy_fwd(here, T));
      table().cross_entropy_fwd(ctx, here, logits.in(), in(local_ids(ids, s.cols, part)), count.in(),
                                {nullptr, stat(T)}, lse.out(Write::Set));
      const std::vector<double> v = lse.values();
      for (int64_t r = 0; r < s.rows; ++r) largest[r] = std::max(largest[r], v[r]);
      part_lse.push_back(lse);
    }
    const Buffer max(stat(T), largest);
    Buffer sums = Buffer::zeros(stat(T), 2 * s.rows), loss = Buffer::zeros(stat(T), 1), lse = max;
    for (size_t i = 0; i < parts.size(); ++i) {
      const RowShape here{s.rows, parts[i].count};
      const Buffer logits(T, columns(parts[i]));
      TestCtx ctx(cost::cross_entropy_sums(here, T));
      table().cross_entropy_sums(ctx, here, logits.in(), in(local_ids(ids, s.cols, parts[i])),
                                 part_lse[i].in(), max.in(), sums.out(Write::Add));
    }
    TestCtx ctx(cost::cross_entropy_of_sums(s.rows, stat(T)));
    table().cross_entropy_of_sums(ctx, s.rows, in(ids), count.in(), max.in(), sums.in(), loss.out(Write::Set),
                                  lse.out(Write::Set));
    return gradient(parts, loss, lse, false);
  }
};

// Row 2 has only -infinity, and its target does not count; row 5 has -infinity in all columns but the last.
Parts parts_of(DType T, RowShape s) {
  Parts p{T, s, some_targets({s.rows, s.cols}), Buffer::random(T, s.rows * s.cols, 1, 4).values()};
  for (int64_t r = 0; r < s.rows; ++r) {
    if (p.ids[r] == kElsewhere) p.ids[r] = int32_t(s.cols - 1);
    if (r == 2) p.ids[r] = -1;
    if (r == 2 || r == 5) std::fill_n(p.x.begin() + r * s.cols, s.cols - (r == 5), -INFINITY);
    if (r == 5) p.ids[r] = int32_t(s.cols - 1);
  }
  return p;
}

TEST_P(L19_CrossEntropyOfParts, OnePartIsTheWholeToTheBit) {
  for (const DType T : float_types())
    for (const RowShape s : {RowShape{1, 1}, {7, 40}, {33, 23}, {9, 3}, {3, 300}}) {
      const Parts p = parts_of(T, s);
      const Result whole = p.whole();
      for (const std::vector<int64_t>& counts : {std::vector<int64_t>{s.cols}, {0, s.cols, 0}}) {
        const Result got = p.of(ranges(counts));
        EXPECT_EQ(got.loss, whole.loss);
        EXPECT_EQ(got.lse, whole.lse);
        EXPECT_EQ(got.gradient, whole.gradient);
      }
    }
}

TEST_P(L19_CrossEntropyOfParts, PartsOfAnyWidthsAreTheWholeWithinRounding) {
  for (const DType T : float_types())
    for (const RowShape s : {RowShape{7, 40}, {33, 23}, {9, 3}, {3, 300}}) {
      const Parts p = parts_of(T, s);
      const Result whole = p.whole();
      const double eps = epsilon_of(stat(T)), by = p.dloss.values()[0] / p.count.values()[0];
      const auto of_lse = [&](int64_t r) { return eps * (double(s.cols) + 64 + 8 * std::abs(whole.lse[r])); };
      double of_loss = 0;  // for the finite rows, with logits of up to 20
      for (int64_t r = 0; r < s.rows; ++r)
        if (r != 2) of_loss += (of_lse(r) + eps * 16 * (20 + std::abs(whole.lse[r]))) / p.count.values()[0];
      const std::vector<int64_t> cuts[] = {{1, s.cols - 1},
                                           {s.cols - 1, 1},
                                           {s.cols / 3, 0, s.cols - s.cols / 3},
                                           std::vector<int64_t>(s.cols, 1)};
      for (const std::vector<int64_t>& counts : cuts) {
        if (counts.size() > 40) continue;
        const Result got = p.of(ranges(counts));
        const std::string op = "cross_entropy_of_sums of " + std::to_string(counts.size()) + " parts";
        ASSERT_NO_FATAL_FAILURE(expect_close(op, got.loss, whole.loss, [&](int64_t) { return of_loss; }));
        ASSERT_NO_FATAL_FAILURE(expect_close(op, got.lse, whole.lse, of_lse));
        ASSERT_NO_FATAL_FAILURE(expect_close(op, got.gradient, whole.gradient, [&](int64_t i) {
          const double p_error = of_lse(i / s.cols) + 40 * eps;  // of probabilities of at most 1
          return by * p_error + 2 * epsilon_of(T) * std::abs(whole.gradient[i]) + 0x1p-24;
        }));
      }
    }
}

}  // namespace
}  // namespace gradus
