// The ops of ranks that move tokens and sums (src/parallel/rank_ops.h): values and gradients.
#include "tests/parallel/rank_ops_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kT = 12, kC = 5;
DividedTokens tokens(const OnRanks& set, int64_t C = kC) { return {set.B, kT, C, set.ranks}; }
// What a rank has: the whole or a part; the same on all ranks or different on each.
enum Stream : uint64_t { X = 100, Dy = 200, B = 300, W = 400 };
Values whole(const OnRanks& set, uint64_t stream, int64_t C = kC) {
  return whole_numbers(tokens(set, C).numel(), stream, set.t);
}
Values part(const OnRanks& set, uint64_t stream, int64_t C = kC) {
  return whole_numbers(tokens(set, C).numel() / set.ranks, stream, set.t);
}
// The value of `whole` or `part` that each rank has.
auto of_each(Values (*f)(const OnRanks&, uint64_t, int64_t), const OnRanks& set, uint64_t stream,
             int64_t C = kC) {
  return [=](int64_t rank) { return f(set, stream + uint64_t(rank), C); };
}

TEST(L19_RankOps, CopyToRanksSumsGradients) {
  expect_on_all_ranks("copy_to_ranks", [](Comm& comm, const OnRanks& set) {
    const Values x = whole(set, X);
    const auto dy = of_each(whole, set, Dy);
    return RankOp{{{tokens(set).whole(), x}},
                  [&comm](In in) { return copy_to_ranks(comm, in[0]); },
                  dy(comm.rank()),
                  x,
                  {sum_of(set.ranks, dy)}};
  });
}

// With and without a bias; without one, bias is empty.
std::vector<RankInput> with_bias(const Shape& shape, const Values& x, const Values& bias) {
  std::vector<RankInput> in{{shape, x}};
  if (!bias.empty()) in.push_back({{int64_t(bias.size())}, bias});
  return in;
}
Tensor second(In in) { return in.size() > 1 ? in[1] : Tensor(); }
Values bias_of(const OnRanks& set, bool biased) { return biased ? whole_numbers(kC, B, set.t) : Values(); }
Values add_bias(const Values& x, const Values& bias) { return bias.empty() ? x : add_to_rows(x, bias); }

TEST(L19_RankOps, SumFromRanksPassesGradientsOn) {
  for (const bool biased : {false, true})
    expect_on_all_ranks(biased ? "sum_from_ranks, bias" : "sum_from_ranks",
                        [&](Comm& comm, const OnRanks& set) {
                          const auto x = of_each(whole, set, X);
                          const Values dy = whole(set, Dy), bias = bias_of(set, biased);
                          return RankOp{with_bias(tokens(set).whole(), x(comm.rank()), bias),
                                        [&comm](In in) { return sum_from_ranks(comm, in[0], second(in)); },
                                        dy,
                                        add_bias(sum_of(set.ranks, x), bias),
                                        {dy, sum_of_rows(dy, kC)}};
                        });
}

TEST(L19_RankOps, GatherTokensScattersTheSumOfGradients) {
  expect_on_all_ranks("gather_tokens", [](Comm& comm, const OnRanks& set) {
    const DividedTokens t = tokens(set);
    const auto x = of_each(part, set, X), dy = of_each(whole, set, Dy);
    return RankOp{{{t.part(), x(comm.rank())}},
                  [&comm](In in) { return gather_tokens(comm, in[0]); },
                  dy(comm.rank()),
                  t.join(x),
                  {t.part_of(sum_of(set.ranks, dy), comm.rank())}};
  });
}

TEST(L19_RankOps, ScatterSumGathersGradients) {
  for (const bool biased : {false, true})
    expect_on_all_ranks(biased ? "scatter_sum, bias" : "scatter_sum", [&](Comm& comm, const OnRanks& set) {
      const DividedTokens t = tokens(set);
      const auto x = of_each(whole, set, X), dy = of_each(part, set, Dy);
      const Values bias = bias_of(set, biased);
      return RankOp{with_bias(t.whole(), x(comm.rank()), bias),
                    [&comm](In in) { return scatter_sum(comm, in[0], second(in)); },
                    dy(comm.rank()),
                    add_bias(t.part_of(sum_of(set.ranks, x), comm.rank()), bias),
                    {t.join(dy), sum_of_rows(dy(comm.rank()), kC)}};
    });
}

TEST(L19_RankOps, TakePartGathersGradients) {
  expect_on_all_ranks("take_part", [](Comm& comm, const OnRanks& set) {
    const DividedTokens t = tokens(set);
    const Values x = whole(set, X);
    const auto dy = of_each(part, set, Dy);
    return RankOp{{{t.whole(), x}},
                  [&comm](In in) { return take_part(comm, in[0]); },
                  dy(comm.rank()),
                  t.part_of(x, comm.rank()),
                  {t.join(dy)}};
  });
}

TEST(L19_RankOps, WholeTokensTakesItsPartOfTheGradient) {
  expect_on_all_ranks("whole_tokens", [](Comm& comm, const OnRanks& set) {
    const DividedTokens t = tokens(set);
    const auto x = of_each(part, set, X);
    const Values dy = whole(set, Dy);
    return RankOp{{{t.part(), x(comm.rank())}},
                  [&comm](In in) { return whole_tokens(comm, in[0]); },
                  dy,
                  t.join(x),
                  {t.part_of(dy, comm.rank())}};
  });
}

// y = x W^T for rows of K elements, and its gradients.
Values product(const Values& x, const Values& w, int64_t K) {
  const size_t k = size_t(K), rows = x.size() / k, out = w.size() / k;
  Values y(rows * out);
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < out; ++o)
      for (size_t c = 0; c < k; ++c) y[r * out + o] += x[r * k + c] * w[o * k + c];
  return y;
}
Values transposed(const Values& x, int64_t columns) {
  const size_t n = size_t(columns), rows = x.size() / n;
  Values y(x.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < n; ++c) y[c * rows + r] = x[r * n + c];
  return y;
}

// Each rank has a different weight: rows of the whole.
TEST(L19_RankOps, GatheredLinearIsLinearOfGatheredTokens) {
  constexpr int64_t kOut = 3;
  for (const bool biased : {false, true})
    expect_on_all_ranks(
        biased ? "gathered_linear, bias" : "gathered_linear", [&](Comm& comm, const OnRanks& set) {
          const DividedTokens t = tokens(set);
          const auto x = of_each(part, set, X), dy = of_each(whole, set, Dy, kOut);
          const auto w = [=](int64_t r) { return whole_numbers(kOut * kC, W + uint64_t(r), set.t); };
          const Values bias = biased ? whole_numbers(kOut, B, set.t) : Values();
          const int64_t r = comm.rank(), rows = set.B * kT;
          RankOp op{{{t.part(), x(r)}, {{kOut, kC}, w(r)}},
                    [&comm](In in) {
                      return gathered_linear(comm, in[0], in[1], in.size() > 2 ? in[2] : Tensor());
                    },
                    dy(r),
                    add_bias(product(t.join(x), w(r), kC), bias),
                    {}};
          if (biased) op.inputs.push_back({{kOut}, bias});
          const Values dx =
              sum_of(set.ranks, [&](int64_t s) { return product(dy(s), transposed(w(s), kC), kOut); });
          op.dx = {t.part_of(dx, r), product(transposed(dy(r), kOut), transposed(t.join(x), kC), rows),
                   sum_of_rows(dy(r), kOut)};
          return op;
        });
}

// Unwanted backward passes send nothing; forward passes send (t-1)/t elements for each scatter or gather, and
// an all-reduce twice that.
TEST(L19_RankOps, ElementsSent) {
  for (const char* device : {"cpu", "meta"})
    for (const int64_t ranks : {1, 2, 3, 4})
      run_cluster({.ranks = ranks, .device = device}, [&](Comm& comm) {
        const Shape whole{2, kT, kC}, part{2, kT / ranks, kC};
        const int64_t one = whole.numel() * (ranks - 1) / ranks;
        struct Case {
          const char* name;
          std::function<Tensor(In)> f;
          Shape x;
          int64_t forward, of_x;
        };
        const std::vector<Case> cases{
            {"copy_to_ranks", [&](In in) { return copy_to_ranks(comm, in[0]); }, whole, 0, 2 * one},
            {"sum_from_ranks", [&](In in) { return sum_from_ranks(comm, in[0], in[1]); }, whole, 2 * one, 0},
            {"gather_tokens", [&](In in) { return gather_tokens(comm, in[0]); }, part, one, one},
            {"scatter_sum", [&](In in) { return scatter_sum(comm, in[0], in[1]); }, whole, one, one},
            {"take_part", [&](In in) { return take_part(comm, in[0]); }, whole, 0, one},
            {"whole_tokens", [&](In in) { return whole_tokens(comm, in[0]); }, part, one, 0}};
        for (const Case& c : cases)
          for (const int training : {0, 1, 2}) {
            const bool has_bias = c.name[0] == 's';
            if (training == 2 && !has_bias) continue;
            std::vector<Tensor> in{Tensor(current().device, c.x, DType::F32, Kind::Data, "x"),
                                   Tensor(current().device, {kC}, DType::F32, Kind::Data, "bias")};
            for (Tensor& x : in)
              if (device == std::string("cpu")) copy_from_host(x, Values(size_t(x.numel()), 1));
            Leaf leaf;
            if (training > 0) attach(in[size_t(training - 1)], leaf, "leaf");
            const std::string what = std::string(c.name) + ", " + std::to_string(ranks) +
                                     " ranks, training " + std::to_string(training);
            const int64_t before = comm.sent().elements, bytes = comm.sent().bytes;
            Tape tape;
            const Tensor y = c.f(in);
            EXPECT_EQ(comm.sent().elements - before, c.forward) << what << ", forward";
            if (training > 0) tape.backward(y, Tensor(y.device(), y.shape(), y.dtype(), Kind::Data, "dy"));
            const int64_t sent = c.forward + (training == 1 ? c.of_x : 0);
            EXPECT_EQ(comm.sent().elements - before, sent) << what;
            EXPECT_EQ(comm.sent().bytes - bytes, 4 * sent) << what;
          }
      });
}

// gathered_linear keeps x, and gathers it a second time in backward for the weight's gradient; without one it
// gathers once.
TEST(L19_RankOps, GatheredLinearKeepsThePartAndGathersAgain) {
  for (const int64_t ranks : {1, 2, 4})
    run_cluster({.ranks = ranks, .device = "meta"}, [&](Comm& comm) {
      const int64_t n = 2 * kT * kC, one = n * (ranks - 1) / ranks;
      for (unsigned training = 0; training < 4; ++training) {
        Device& device = current().device;
        Tensor x(device, {2, kT / ranks, kC}, DType::F32, Kind::Temporary, "x"),
            w(device, {3, kC}, DType::F32, Kind::Weight, "w");
        Leaf of_x, of_w;
        if (training & 1) attach(x, of_x, "x");
        if (training & 2) attach(w, of_w, "w");
        const int64_t before = comm.sent().elements;
        Tape tape;
        const Tensor y = gathered_linear(comm, x, w, {});
        EXPECT_EQ(y.shape(), (Shape{2, kT, 3}));
        EXPECT_EQ(tape.saved_bytes(), training & 2 ? 4 * n / ranks : 0) << training;
        if (training) tape.backward(y, Tensor(device, y.shape(), y.dtype(), Kind::Data, "dy"));
        const int64_t times = 1 + (training & 1 ? 1 : 0) + (training & 2 ? 1 : 0);
        EXPECT_EQ(comm.sent().elements - before, times * one) << ranks << " ranks, training " << training;
      }
    });
}

// Also if a variable is the only reference to the input.
TEST(L19_RankOps, TheirInputIsNotWrittenTo) {
  run_cluster({.ranks = 2}, [](Comm& comm) {
    const std::pair<const char*, std::function<Tensor(const Tensor&)>> ops[] = {
        {"copy_to_ranks", [&](const Tensor& x) { return copy_to_ranks(comm, x); }},
        {"sum_from_ranks", [&](const Tensor& x) { return sum_from_ranks(comm, x); }},
        {"gather_tokens", [&](const Tensor& x) { return gather_tokens(comm, x); }},
        {"scatter_sum", [&](const Tensor& x) { return scatter_sum(comm, x); }},
        {"take_part", [&](const Tensor& x) { return take_part(comm, x); }},
        {"whole_tokens", [&](const Tensor& x) { return whole_tokens(comm, x); }}};
    for (const auto& [name, f] : ops) {
      const Tensor x = tensor_of(Values(20, 3), {1, 4, 5});
      f(x);
      EXPECT_EQ(to_host<double>(x), Values(20, 3)) << name;
    }
  });
}

TEST(L19_RankOps, TokensThatRanksDoNotDivideAreRefused) {
  run_cluster({.ranks = 3}, [](Comm& comm) {
    const Tensor x = tensor_of(Values(2 * 4 * kC, 1), {2, 4, kC}), bias = tensor_of(Values(kC, 1), {kC});
    expect_refused("4", [&] { take_part(comm, x); });
    expect_refused("4", [&] { scatter_sum(comm, x); });
    expect_refused("4", [&] { scatter_sum(comm, x, bias); });
    EXPECT_EQ(to_host<double>(sum_from_ranks(comm, x)), Values(2 * 4 * kC, 3)) << "it divides nothing";
    const Tensor fits = tensor_of(Values(2 * 3 * kC, 1), {2, 3, kC});
    EXPECT_EQ(to_host<double>(scatter_sum(comm, fits, bias)), Values(2 * kC, 4)) << "after the errors";
  });
}

}  // namespace
}  // namespace gradus
