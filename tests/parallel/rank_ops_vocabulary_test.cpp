// The ops of ranks that divide a vocabulary (src/parallel/rank_ops.h): embedding and cross-entropy, each
// compared with the plain op on the whole.
#include "tests/parallel/rank_ops_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kV = 31, kC = 6, kT = 4;  // 31: no number of ranks divides it

std::vector<int32_t> tokens(int64_t n, bool some_do_not_count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) {
    Rng rng(23, uint64_t(i));
    ids.push_back(some_do_not_count && i % 3 == 1 ? -1 : int32_t(rng.below(kV)));
  }
  ids[0] = 0, ids[size_t(n - 1)] = kV - 1;
  return ids;
}
Values columns_of(const Values& x, int64_t columns, Part part) {
  Values own;
  for (size_t row = 0; row < x.size(); row += size_t(columns))
    own.insert(own.end(), x.begin() + int64_t(row) + part.begin,
               x.begin() + int64_t(row) + part.begin + part.count);
  return own;
}

TEST(L19_RankOps, EmbeddingOfPartIsEmbedding) {
  expect_on_all_ranks("embedding_of_part", [](Comm& comm, const OnRanks& set) {
    const std::vector<int32_t> ids = tokens(set.B * kT, false);
    const Part part = part_of(kV, comm.rank(), comm.size());
    const Values table = whole_numbers(kV * kC, 1, set.t), dy = whole_numbers(set.B * kT * kC, 2, set.t);
    Values y, dtable(table.size());
    for (size_t i = 0; i < ids.size(); ++i)
      for (size_t c = 0; c < kC; ++c) {
        y.push_back(table[size_t(ids[i]) * kC + c]);
        dtable[size_t(ids[i]) * kC + c] += dy[i * kC + c];
      }
    const auto rows = [&](const Values& x) {
      return Values(x.begin() + part.begin * kC, x.begin() + (part.begin + part.count) * kC);
    };
    return RankOp{{{{part.count, kC}, rows(table)}},
                  [&comm, ids, B = set.B](In in) {
                    return embedding_of_part(comm, in[0], kV, ids_of(ids, {B, kT}));
                  },
                  dy,
                  y,
                  {rows(dtable)}};
  });
}

struct Loss {
  double loss;
  Values dlogits, used_logits;
};
struct LossSetting {
  bool some_do_not_count = false, with_count = false;
  double deviation = 2, factor = 1;
  bool logits_are_a_parameter = false;
  double shift = 0;
};
// On this rank if `comm` is set, else on one device.
Loss loss_of(Comm* comm, const OnRanks& set, const LossSetting& how) {
  const Part part = comm ? part_of(kV, comm->rank(), comm->size()) : Part{0, kV};
  Values all = normal_numbers(set.B * kT * kV, 3, how.deviation);
  for (double& x : all) x += how.shift;
  const Tensor x = tensor_of(columns_of(all, kV, part), {set.B, kT, part.count}, set.t),
               targets = ids_of(tokens(set.B * kT, how.some_do_not_count), {set.B, kT}),
               count = how.with_count ? tensor_of({50}, {1}) : Tensor();
  Tensor leaf_value = x;
  Leaf leaf;
  attach(leaf_value, leaf, "logits");
  Tape tape;
  const Tensor logits = how.logits_are_a_parameter ? leaf_value : scale(leaf_value, 1);
  Tensor loss =
      comm ? cross_entropy_of_part(*comm, logits, kV, targets, count) : cross_entropy(logits, targets, count);
  EXPECT_EQ(loss.shape(), Shape());
  EXPECT_EQ(loss.dtype(), DType::F32);
  const double value = item(loss);
  if (how.factor != 1) loss = scale(loss, how.factor);
  tape.backward(loss);
  return {value, to_host<double>(leaf.grad), to_host<double>(leaf_value)};
}

void expect_loss(const OnRanks& set, const LossSetting& how, const std::string& what, double error) {
  Loss plain;
  {
    Context context(set.device);
    plain = loss_of(nullptr, set, how);
  }
  run_cluster({.ranks = set.ranks, .device = set.device}, [&](Comm& comm) {
    const Loss ours = loss_of(&comm, set, how);
    const std::string where = what + ", " + set.text() + ", rank " + std::to_string(comm.rank());
    EXPECT_NEAR(ours.loss, plain.loss, error * std::abs(plain.loss)) << where;
    const Values expected = columns_of(plain.dlogits, kV, part_of(kV, comm.rank(), comm.size()));
    ASSERT_EQ(ours.dlogits.size(), expected.size()) << where;
    double norm = 0;
    for (const double x : plain.dlogits) norm += x * x;
    norm = std::sqrt(norm / double(plain.dlogits.size()));
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(ours.dlogits[i], expected[i], error * (norm + std::abs(expected[i]))) << where << ", " << i;
    if (how.logits_are_a_parameter) {
      EXPECT_EQ(ours.used_logits, columns_of(plain.used_logits, kV, part_of(kV, comm.rank(), comm.size())))
          << where << ": the logits, which are a parameter, afterwards";
    }
  });
}

TEST(L19_RankOps, CrossEntropyOfPartIsCrossEntropy) {
  for (const OnRanks& set : settings_of_rank_ops()) {
    const double error = set.ranks == 1        ? 0
                         : set.t == DType::F32 ? 2e-6
                         : set.t == DType::F16 ? 2e-3
                                               : 1.6e-2;
    expect_loss(set, {}, "all targets count", error);
    expect_loss(set, {.some_do_not_count = true}, "targets of -1", error);
    expect_loss(set, {.some_do_not_count = true, .with_count = true}, "targets of -1 and count", error);
    expect_loss(set, {.factor = 0.25}, "an upstream gradient of 0.25", error);
    expect_loss(set, {.logits_are_a_parameter = true}, "logits of a parameter", error);
  }
}

// exp(1000) is infinite, so the maximum over all ranks is subtracted; if it is on a different rank, this
// rank's sum may be 0.
TEST(L19_RankOps, CrossEntropyOfPartOfLargeLogits) {
  for (const int64_t ranks : {1, 2, 4})
    for (const double shift : {0.0, 1000.0, -1000.0})
      expect_loss({"cpu", ranks, 3, DType::F32}, {.deviation = 300, .shift = shift}, "large logits", 2e-6);
}

TEST(L19_RankOps, CrossEntropyOfPartWithoutATargetThatCounts) {
  const auto loss = [](Comm* comm) {
    const Part part = comm ? part_of(kV, comm->rank(), comm->size()) : Part{0, kV};
    const Tensor logits = tensor_of(Values(size_t(2 * part.count), 0.5), {2, part.count}),
                 targets = ids_of({-1, -1}, {2});
    return item(comm ? cross_entropy_of_part(*comm, logits, kV, targets) : cross_entropy(logits, targets));
  };
  double plain = 0;
  {
    Context context;
    plain = loss(nullptr);
  }
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    const double ours = loss(&comm);
    EXPECT_TRUE(ours == plain || (std::isnan(ours) && std::isnan(plain))) << ours << ", plain " << plain;
  });
}

// "They send a maximum and two sums per row": three all-reduces of B T numbers. Nothing in backward.
TEST(L19_RankOps, ElementsSentForTheVocabulary) {
  for (const char* device : {"cpu", "meta"})
    for (const int64_t ranks : {1, 2, 4})
      run_cluster({.ranks = ranks, .device = device}, [&](Comm& comm) {
        const Part part = part_of(kV, comm.rank(), ranks);
        Tensor logits(current().device, {2, kT, part.count}, DType::BF16, Kind::Data, "logits"),
            table(current().device, {part.count, kC}, DType::BF16, Kind::Weight, "table"),
            ids(current().device, {2, kT}, DType::I32, Kind::Data, "ids");
        if (device == std::string("cpu")) {
          copy_from_host(logits, Values(size_t(logits.numel()), 1));
          copy_from_host(table, Values(size_t(table.numel()), 1));
          ids = ids_of(tokens(2 * kT, false), {2, kT});
        }
        Leaf of_logits, of_table;
        attach(logits, of_logits, "logits"), attach(table, of_table, "table");
        {
          const Sent before = comm.sent();
          Tape tape;
          tape.backward(cross_entropy_of_part(comm, logits, kV, ids));
          EXPECT_EQ(comm.sent().elements - before.elements, 3 * 2 * (2 * kT) * (ranks - 1) / ranks);
          EXPECT_EQ(comm.sent().bytes - before.bytes, 4 * (comm.sent().elements - before.elements));
        }
        const Sent before = comm.sent();
        Tape tape;
        const Tensor y = embedding_of_part(comm, table, kV, ids);
        tape.backward(y, y.detach());
        EXPECT_EQ(comm.sent().elements - before.elements, 2 * (2 * kT * kC) * (ranks - 1) / ranks);
        EXPECT_EQ(comm.sent().bytes - before.bytes, 2 * (comm.sent().elements - before.elements));
      });
}

// The plain op's message on each rank; afterwards the ranks compute.
TEST(L19_RankOps, TokensOutsideTheVocabularyAreRefused) {
  for (const int32_t wrong : {-2, int32_t(kV), 1000}) {
    std::string of_target;
    const std::vector<int32_t> ids{0, wrong, 3, 4};
    {
      Context context;
      of_target = refusal([&] { cross_entropy(tensor_of(Values(4 * kV, 1), {4, kV}), ids_of(ids, {4})); });
    }
    EXPECT_NE(of_target, "");
    for (const int64_t ranks : {1, 2, 4})
      run_cluster({.ranks = ranks}, [&](Comm& comm) {
        const Part part = part_of(kV, comm.rank(), ranks);
        const Tensor logits = tensor_of(Values(size_t(4 * part.count), 1), {4, part.count}),
                     table = tensor_of(Values(size_t(part.count * kC), 1), {part.count, kC});
        const std::string number = std::to_string(wrong);
        expect_refused(number, [&] { cross_entropy_of_part(comm, logits, kV, ids_of(ids, {4})); });
        expect_refused(number, [&] { embedding_of_part(comm, table, kV, ids_of(ids, {4})); });
        const Tensor right = ids_of({0, 9, 22, kV - 1}, {4});
        EXPECT_NEAR(item(cross_entropy_of_part(comm, logits, kV, right)), std::log(double(kV)), 1e-6);
        EXPECT_EQ(to_host<double>(embedding_of_part(comm, table, kV, right)), Values(4 * kC, 1));
      });
  }
  run_cluster({.ranks = 2}, [&](Comm& comm) {  // -1 is not a token, only a target that does not count
    const Tensor table = tensor_of(Values(size_t(part_of(kV, comm.rank(), 2).count * kC), 1),
                                   {part_of(kV, comm.rank(), 2).count, kC});
    EXPECT_NE(refusal([&] { embedding_of_part(comm, table, kV, ids_of({0, -1}, {2})); }), "");
  });
}

// Also on one device: the mark of rows that a different rank has is not an id that users can give.
TEST(L19_RankOps, NegativeIdsAreRefusedByThePlainEmbedding) {
  Context context;
  const Tensor table = tensor_of(Values(kV * kC, 1), {kV, kC});
  for (const int32_t wrong : {-1, -2, -3, -1000, INT32_MIN + 1})
    expect_refused(std::to_string(wrong), [&] { embedding(table, ids_of({0, wrong}, {2})); });
}

// A table or logits that are not this rank's part; targets or count with a different shape or dtype.
TEST(L19_RankOps, ShapesThatDoNotFitTheVocabulary) {
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    const int64_t own = part_of(kV, comm.rank(), 2).count;
    const Tensor targets = ids_of({0, 1}, {2});
    const auto of = [](const Shape& shape) { return tensor_of(Values(size_t(shape.numel()), 1), shape); };
    EXPECT_NE(refusal([&] { embedding_of_part(comm, of({own + 2, kC}), kV, targets); }), "");
    EXPECT_NE(refusal([&] { embedding_of_part(comm, of({own, kC}), kV, of({2})); }), "");
    EXPECT_NE(refusal([&] { cross_entropy_of_part(comm, of({2, own - 1}), kV, targets); }), "");
    EXPECT_NE(refusal([&] { cross_entropy_of_part(comm, of({3, own}), kV, targets); }), "");
    EXPECT_NE(refusal([&] { cross_entropy_of_part(comm, of({2, own}), kV, of({2})); }), "");
    EXPECT_NE(refusal([&] { cross_entropy_of_part(comm, of({2, own}), kV, targets, of({2})); }), "");
    comm.barrier();
    EXPECT_NEAR(item(cross_entropy_of_part(comm, of({2, own}), kV, targets)), std::log(double(kV)), 1e-6);
  });
}

}  // namespace
}  // namespace gradus
