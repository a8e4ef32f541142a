// The ops of expert parallelism (src/parallel/rank_ops.h): to_experts, from_experts.
#include "tests/parallel/rank_ops_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kC = 3;

// Rows for E experts of each rank's B sequences, R rows each.
struct ExpertRows {
  int64_t ranks, E, B, R;
  int64_t here() const { return E / ranks; }
  Shape of_sequences() const { return {E, B, R, kC}; }             // on the rank of the sequences
  Shape of_experts() const { return {here(), ranks * B, R, kC}; }  // on the rank of the experts
  size_t numel() const { return size_t(E * B * R * kC); }          // of both
  size_t at_sequences(int64_t e, int64_t b) const { return size_t((e * B + b) * R * kC); }
  size_t at_experts(int64_t e, int64_t sequence) const { return size_t((e * ranks * B + sequence) * R * kC); }
  // What the experts of `rank` receive, if the sequences of rank s send x(s).
  Values to(int64_t rank, const std::function<Values(int64_t)>& x) const {
    Values y(numel());
    for (int64_t s = 0; s < ranks; ++s) {
      const Values sent = x(s);
      for (int64_t e = 0; e < here(); ++e)
        for (int64_t b = 0; b < B; ++b)
          for (size_t i = 0; i < size_t(R * kC); ++i)
            y[at_experts(e, s * B + b) + i] = sent[at_sequences(rank * here() + e, b) + i];
    }
    return y;
  }
  // What the sequences of `rank` receive, if the experts of rank s send x(s).
  Values from(int64_t rank, const std::function<Values(int64_t)>& x) const {
    Values y(numel());
    for (int64_t s = 0; s < ranks; ++s) {
      const Values sent = x(s);
      for (int64_t e = 0; e < here(); ++e)
        for (int64_t b = 0; b < B; ++b)
          for (size_t i = 0; i < size_t(R * kC); ++i)
            y[at_sequences(s * here() + e, b) + i] = sent[at_experts(e, rank * B + b) + i];
    }
    return y;
  }
  std::function<Values(int64_t)> rows(uint64_t stream, DType t) const {
    return [=, n = int64_t(numel())](int64_t rank) { return whole_numbers(n, stream + uint64_t(rank), t); };
  }
};

TEST(L21_ExpertOps, ToExpertsAndBack) {
  for (const int64_t experts_per_rank : {1, 3})
    for (const int64_t R : {1, 5}) {
      const auto rows_of = [&](const OnRanks& set) {
        return ExpertRows{set.ranks, set.ranks * experts_per_rank, set.B, R};
      };
      expect_on_all_ranks("to_experts", [&](Comm& comm, const OnRanks& set) {
        const ExpertRows s = rows_of(set);
        const auto x = s.rows(100, set.t), dy = s.rows(200, set.t);
        return RankOp{{{s.of_sequences(), x(comm.rank())}},
                      [&comm, s](In in) {
                        const Tensor y = to_experts(comm, in[0]);
                        EXPECT_EQ(y.shape(), s.of_experts());
                        return y;
                      },
                      dy(comm.rank()),
                      s.to(comm.rank(), x),
                      {s.from(comm.rank(), dy)}};
      });
      expect_on_all_ranks("from_experts", [&](Comm& comm, const OnRanks& set) {
        const ExpertRows s = rows_of(set);
        const auto x = s.rows(300, set.t), dy = s.rows(400, set.t);
        return RankOp{{{s.of_experts(), x(comm.rank())}},
                      [&comm, s](In in) {
                        const Tensor y = from_experts(comm, in[0]);
                        EXPECT_EQ(y.shape(), s.of_sequences());
                        return y;
                      },
                      dy(comm.rank()),
                      s.from(comm.rank(), x),
                      {s.to(comm.rank(), dy)}};
      });
    }
}

TEST(L21_ExpertOps, FromExpertsIsTheInverse) {
  for (const char* device : {"cpu", "emu"})
    for (const int64_t ranks : {1, 2, 3, 4})
      run_cluster({.ranks = ranks, .device = device}, [&](Comm& comm) {
        const ExpertRows s{ranks, 2 * ranks, 3, 5};
        const Values x = normal_numbers(int64_t(s.numel()), uint64_t(comm.rank()));
        for (const DType t : {DType::F32, DType::BF16, DType::F16}) {
          const Tensor there = tensor_of(x, s.of_sequences(), t), here = tensor_of(x, s.of_experts(), t);
          EXPECT_EQ(to_host<double>(from_experts(comm, to_experts(comm, there))), to_host<double>(there));
          EXPECT_EQ(to_host<double>(to_experts(comm, from_experts(comm, here))), to_host<double>(here));
        }
      });
}

TEST(L21_ExpertOps, NoSequencesOrNoRows) {
  for (const char* device : {"cpu", "emu", "meta"})
    for (const int64_t ranks : {1, 2, 4})
      run_cluster({.ranks = ranks, .device = device}, [&](Comm& comm) {
        for (const ExpertRows& s : {ExpertRows{ranks, 4, 0, 5}, ExpertRows{ranks, 4, 3, 0}}) {
          Tensor x(current().device, s.of_sequences(), DType::F32, Kind::Data, "x");
          Leaf leaf;
          attach(x, leaf, "x");
          Tape tape;
          const Tensor y = to_experts(comm, x);
          EXPECT_EQ(y.shape(), s.of_experts());
          const Tensor z = from_experts(comm, y);
          EXPECT_EQ(z.shape(), s.of_sequences());
          tape.backward(z, Tensor(current().device, z.shape(), z.dtype(), Kind::Data, "dz"));
          EXPECT_EQ(leaf.grad.shape(), s.of_sequences());
          EXPECT_EQ(comm.sent().elements, 0);
        }
      });
}

// (N-1)/N of the elements, forward and backward; a gradient that is not wanted is not sent, and nothing is
// saved.
TEST(L21_ExpertOps, ElementsSent) {
  for (const char* device : {"cpu", "meta"})
    for (const int64_t ranks : {1, 2, 4})
      for (const bool to : {true, false})
        for (const bool trains : {false, true})
          run_cluster({.ranks = ranks, .device = device}, [&](Comm& comm) {
            const ExpertRows s{ranks, 8, 3, 5};
            const int64_t one = int64_t(s.numel()) * (ranks - 1) / ranks;
            Tensor x(current().device, to ? s.of_sequences() : s.of_experts(), DType::BF16, Kind::Data, "x");
            Leaf leaf;
            if (trains) attach(x, leaf, "x");
            Tape tape;
            const Tensor y = to ? to_experts(comm, x) : from_experts(comm, x);
            EXPECT_EQ(comm.sent().elements, one) << ranks << " ranks, forward";
            EXPECT_EQ(tape.saved_bytes(), 0);
            EXPECT_EQ(tape.nodes().size(), trains ? 1u : 0u);
            if (!trains) return;
            tape.backward(y, Tensor(current().device, y.shape(), y.dtype(), Kind::Data, "dy"));
            EXPECT_EQ(comm.sent().elements, 2 * one) << ranks << " ranks";
            EXPECT_EQ(comm.sent().bytes, 2 * 2 * one) << ranks << " ranks";
          });
}

TEST(L21_ExpertOps, TheirInputIsNotWrittenTo) {
  for (const int64_t ranks : {1, 2})
    run_cluster({.ranks = ranks}, [&](Comm& comm) {
      const ExpertRows s{ranks, 2, 2, 3};
      const Values all = normal_numbers(int64_t(s.numel()), 5 + uint64_t(comm.rank()));
      const Tensor x = tensor_of(all, s.of_sequences()), y = tensor_of(all, s.of_experts());
      const Values before = to_host<double>(x);
      to_experts(comm, x), from_experts(comm, y);
      EXPECT_EQ(to_host<double>(x), before) << ranks;
      EXPECT_EQ(to_host<double>(y), before) << ranks;
    });
}

// The ranks go on after an error.
TEST(L21_ExpertOps, ShapesThatCannotBeAreRefused) {
  for (const char* device : {"cpu", "meta"})
    run_cluster({.ranks = 3, .device = device}, [](Comm& comm) {
      const auto x = [](const Shape& shape) {
        return Tensor(current().device, shape, DType::F32, Kind::Data, "x");
      };
      const std::string to = "it must be (E,B,R,C) with E a multiple of the ranks",
                        from = "it must be (E/N,N B,R,C)";
      for (const Shape& shape : {Shape{3, 2, 5}, Shape{3}, Shape{}, Shape{4, 3, 2, 5}, Shape{2, 3, 2, 5}})
        expect_refused(to, [&] { to_experts(comm, x(shape)); });
      for (const Shape& shape : {Shape{3, 3, 5}, Shape{3}, Shape{}, Shape{3, 4, 2, 5}, Shape{3, 2, 2, 5}})
        expect_refused(from, [&] { from_experts(comm, x(shape)); });
      EXPECT_EQ(comm.sent().elements, 0);
      EXPECT_EQ(from_experts(comm, to_experts(comm, x({6, 2, 5, 4}))).shape(), (Shape{6, 2, 5, 4}));
    });
}

// One rank has rows of a different size: an error on all ranks.
TEST(L21_ExpertOps, RanksWithDifferentRowsAreRefused) {
  for (const char* device : {"cpu", "meta"})
    for (const bool to : {true, false}) {
      const std::string text = refusal([&] {
        run_cluster({.ranks = 2, .device = device}, [&](Comm& comm) {
          const int64_t B = comm.rank() == 0 ? 2 : 4;
          const Tensor x(current().device, {2, B, 5, kC}, DType::F32, Kind::Data, "x");
          to ? to_experts(comm, x) : from_experts(comm, x);
        });
      });
      EXPECT_NE(text.find("all_to_all"), std::string::npos) << text;
    }
}

}  // namespace
}  // namespace gradus
