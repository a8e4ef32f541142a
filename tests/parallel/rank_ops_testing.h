// For tests of the ops of ranks: what an op returns on each rank, and the gradients of its inputs.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "src/core/rng.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/rank_ops.h"

namespace gradus {

using Values = std::vector<double>;
using In = const std::vector<Tensor>&;

// Small whole numbers: their sums are exact in every dtype.
inline Values whole_numbers(int64_t n, uint64_t stream, DType t = DType::F32) {
  const int64_t most = size_of(t) == 2 ? 1 : 4;
  Rng rng(17, stream);
  Values v;
  for (int64_t i = 0; i < n; ++i) v.push_back(double(int64_t(rng.below(uint64_t(2 * most + 1))) - most));
  return v;
}
inline Values normal_numbers(int64_t n, uint64_t stream, double deviation = 1) {
  Rng rng(19, stream);
  Values v;
  for (int64_t i = 0; i < n; ++i) v.push_back(deviation * rng.normal());
  return v;
}
inline Tensor tensor_of(const Values& v, const Shape& shape, DType t = DType::F32) {
  return from_host(current().device, v, shape, t, Kind::Data, "x");
}
inline Tensor ids_of(const std::vector<int32_t>& ids, const Shape& shape) {
  return from_host(current().device, ids, shape, DType::I32, Kind::Data, "ids");
}

inline Values plus(Values a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
inline Values times(Values a, double factor) {
  for (double& x : a) x *= factor;
  return a;
}
// The sum of f over the ranks.
inline Values sum_of(int64_t ranks, const std::function<Values(int64_t rank)>& f) {
  Values all = f(0);
  for (int64_t r = 1; r < ranks; ++r) all = plus(all, f(r));
  return all;
}

// A tensor (B,T,C) whose tokens are divided among ranks.
struct DividedTokens {
  int64_t B, T, C, ranks;
  int64_t numel() const { return B * T * C; }
  Shape whole() const { return {B, T, C}; }
  Shape part() const { return {B, T / ranks, C}; }
  Values part_of(const Values& all, int64_t rank) const {
    const int64_t n = T / ranks * C;
    Values part;
    for (int64_t b = 0; b < B; ++b)
      part.insert(part.end(), all.begin() + b * T * C + rank * n, all.begin() + b * T * C + (rank + 1) * n);
    return part;
  }
  Values join(const std::function<Values(int64_t rank)>& f) const {
    const int64_t n = T / ranks * C;
    Values all(static_cast<size_t>(numel()));
    for (int64_t r = 0; r < ranks; ++r) {
      const Values part = f(r);
      for (int64_t i = 0; i < B * n; ++i) all[size_t(i / n * T * C + r * n + i % n)] = part[size_t(i)];
    }
    return all;
  }
};
inline Values sum_of_rows(const Values& x, int64_t C) {
  Values sum(static_cast<size_t>(C));
  for (size_t i = 0; i < x.size(); ++i) sum[i % size_t(C)] += x[i];
  return sum;
}
inline Values add_to_rows(Values x, const Values& bias) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += bias[i % bias.size()];
  return x;
}

struct RankInput {
  Shape shape;
  Values values;
};
// An op on one rank, and the gradients that its formula gives for dy.
struct RankOp {
  std::vector<RankInput> inputs;
  std::function<Tensor(In)> f;
  Values dy, y;
  std::vector<Values> dx;
};

// How the op is used: alone; or on the output of a different op, with its result added to a parameter, and
// with the same input read by a product. Then the test notices if it writes to its input, or to the gradient
// that it shares with the addition.
enum class Use { Alone, AmongOthers };

// y and every gradient, summed over two backward passes, for each subset of inputs that train.
inline void expect_rank_op(const RankOp& op, DType t, const std::string& what, double error = 0) {
  const auto near = [&](const Values& got, const Values& expected, const std::string& of) {
    ASSERT_EQ(got.size(), expected.size()) << what << ": " << of;
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], error * (1 + std::abs(expected[i])))
          << what << ": " << of << ", " << i;
  };
  for (const Use use : {Use::Alone, Use::AmongOthers})
    for (unsigned training = 0; training < 1u << op.inputs.size(); ++training) {
      const std::string which = std::string(use == Use::Alone ? "alone" : "among others") +
                                ", inputs that train " + std::to_string(training);
      std::vector<Tensor> x;
      std::vector<Leaf> leaves(op.inputs.size());
      for (size_t i = 0; i < op.inputs.size(); ++i) {
        x.push_back(tensor_of(op.inputs[i].values, op.inputs[i].shape, t));
        if (training >> i & 1) attach(x[i], leaves[i], "input " + std::to_string(i));
      }
      Tensor k;
      Leaf of_k;
      const bool x_trains = (training & 1) != 0;
      for (int pass = 0; pass < 2; ++pass) {
        Tape tape;
        std::vector<Tensor> given = x;
        if (use == Use::AmongOthers) given[0] = scale(x[0], 1);
        const Tensor also = given[0];  // TheirInputIsNotWrittenTo has inputs without a second reference
        Tensor y = op.f(given), product;
        near(to_host<double>(y), op.y, "y, " + which);
        EXPECT_EQ(y.dtype(), t) << what;
        for (size_t i = 0; i < x.size(); ++i) near(to_host<double>(given[i]), op.inputs[i].values, "input");
        EXPECT_EQ(y.slot.wanted(), training != 0) << what << ", " << which;
        if (use == Use::Alone && training == 0) {
          EXPECT_TRUE(tape.nodes().empty()) << what;
          continue;
        }
        Values dz = op.dy;
        if (use == Use::AmongOthers) {
          if (!k.defined()) k = tensor_of(Values(op.dy.size(), 0), y.shape(), t), attach(k, of_k, "k");
          y = add(y, k);
          product = multiply(given[0], given[0]);
          dz.insert(dz.end(), size_t(product.numel()), 1);
          y = concatenate({y.reshape({1, y.numel()}), product.reshape({1, product.numel()})});
        }
        const Tensor upstream = tensor_of(dz, y.shape(), t);
        tape.backward(y, upstream);
        near(to_host<double>(upstream), dz, "the upstream gradient afterwards, " + which);
      }
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(leaves[i].grad.defined(), (training >> i & 1) != 0) << what << ", " << which << ", " << i;
        if (!leaves[i].grad.defined()) continue;
        Values expected = times(op.dx[i], 2);
        if (use == Use::AmongOthers && i == 0 && x_trains)
          expected = plus(expected, times(op.inputs[0].values, 4));
        near(to_host<double>(leaves[i].grad), expected,
             "the gradient of input " + std::to_string(i) + ", " + which);
      }
      if (use == Use::AmongOthers) near(to_host<double>(of_k.grad), times(op.dy, 2), "k, " + which);
    }
}

struct OnRanks {
  const char* device;
  int64_t ranks, B;
  DType t;
  std::string text() const {
    return std::string(device) + ", " + std::to_string(ranks) + " ranks, B " + std::to_string(B) + ", " +
           std::string(name_of(t));
  }
};
inline std::vector<OnRanks> settings_of_rank_ops() {
  std::vector<OnRanks> all;
  for (const int64_t ranks : {1, 2, 3, 4})
    for (const int64_t B : {1, 3})
      for (const DType t : {DType::F32, DType::BF16}) all.push_back({"cpu", ranks, B, t});
  all.push_back({"cpu", 3, 2, DType::F16});
  all.push_back({"emu", 2, 3, DType::F32});
  all.push_back({"emu", 3, 1, DType::BF16});
  return all;
}
using MakeRankOp = std::function<RankOp(Comm&, const OnRanks&)>;
inline void expect_on_all_ranks(const std::string& name, const MakeRankOp& make) {
  for (const OnRanks& set : settings_of_rank_ops()) {
    if (testing::Test::HasFailure()) return;
    run_cluster({.ranks = set.ranks, .device = set.device}, [&](Comm& comm) {
      expect_rank_op(make(comm, set), set.t,
                     name + ", " + set.text() + ", rank " + std::to_string(comm.rank()));
    });
  }
}

}  // namespace gradus
