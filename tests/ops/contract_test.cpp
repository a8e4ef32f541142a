// What each op saves for backward, for every subset of its inputs that train: only what a wanted gradient
// needs. And what it counts: the costs of exactly the kernels that it calls.
#include <gtest/gtest.h>

#include <map>

#include "tests/ops/contracts.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L03_OpContract : ::testing::TestWithParam<Contract> {
  const Contract& contract = GetParam();
  const Op& op = op_of(contract.name);
};
INSTANTIATE_TEST_SUITE_P(Ops, L03_OpContract, ::testing::ValuesIn(kContracts),
                         [](const auto& info) { return std::string(info.param.name); });

std::vector<Tensor> inputs_of(const Op& op, unsigned training, std::vector<Leaf>& leaves,
                              DType T = DType::F32, Kind kind = Kind::Temporary) {
  std::vector<Tensor> x;
  leaves.resize(op.shapes.size());
  for (size_t i = 0; i < op.shapes.size(); ++i) {
    x.emplace_back(current().device, op.shapes[i], T, kind, std::to_string(i));
    if (training >> i & 1) attach(x[i], leaves[i], std::to_string(i));
  }
  return x;
}

TEST_P(L03_OpContract, OnlyWhatAWantedGradientNeeds) {
  const unsigned subsets = 1u << op.shapes.size();
  for (unsigned i = 0; i < subsets * kKinds; ++i) {  // each subset, with inputs of each kind
    const unsigned training = i % subsets;
    Context context("meta");
    std::vector<Leaf> leaves;
    const std::vector<Tensor> x = inputs_of(op, training, leaves, DType::F32, Kind(i / subsets));
    Tape tape;
    const Tensor y = op.f(x);
    ASSERT_EQ(tape.nodes().size(), training == 0 ? 0u : 1u)
        << "an op must be recorded exactly if an input trains";
    if (training == 0) continue;
    const std::string name = op.name;
    EXPECT_EQ(tape.nodes()[0].op, name.substr(0, std::min(name.find("_dropped"), name.find("_grouped"))));
    std::string saved;
    for (const Saved& s : tape.nodes()[0].saved)
      if (s.tensor.defined()) {
        saved += s.tensor.storage().name() + " ";
        EXPECT_NE(s.tensor.storage().kind(), Kind::Temporary)
            << "a saved tensor has kind Temporary; it must be an activation";
      }
    EXPECT_EQ(saved, contract.saves(training)) << op << ", inputs that train " << training;
  }
}

TEST_P(L03_OpContract, AWriteToAnyOfItIsFoundOut) {
  for (size_t k = 0, count = 1; k < count; ++k) {
    Context context("meta");
    std::vector<Leaf> leaves;
    const std::vector<Tensor> x = inputs_of(op, (1u << op.shapes.size()) - 1, leaves);
    Tape tape;
    const Tensor y = op.f(x), dy = empty_like(y, "dy");
    count = tape.nodes()[0].saved.size();
    if (k == count) break;
    Tensor saved = tape.nodes()[0].saved[k].tensor;
    if (!saved.defined()) continue;  // an optional input that is absent
    saved.add();
    expect_refused("'" + saved.storage().name() + "' was written to", [&] { tape.backward(y, dy); });
  }
}

std::map<Cost, int64_t> counted(const Costs& costs) {
  std::map<Cost, int64_t> trace;
  for (const Cost& c : costs) ++trace[c];
  return trace;
}

TEST_P(L03_OpContract, ItCountsTheCostsOfItsKernels) {
  for (const DType T : {DType::F64, DType::F32, DType::BF16})
    for (unsigned training = 1; training < 1u << op.shapes.size(); ++training) {
      Context context("meta");
      Meter& meter = context.device.meter();
      meter.keep_trace();
      std::vector<Leaf> leaves;
      const std::vector<Tensor> x = inputs_of(op, training, leaves, T);
      Tape tape;
      const Tensor y = op.f(x), dy = empty_like(y, "dy");
      std::map<Cost, int64_t> forward = counted(contract.forward(T));
      if (context.dropout_ordinal() > 0) ++forward[{OpClass::Elementwise}];  // the tape copies the step
      EXPECT_EQ(meter.trace(), forward) << op << " " << name_of(T);
      meter.reset_totals();
      tape.backward(y, dy);
      EXPECT_EQ(meter.trace(), counted(contract.backward(T, training)))
          << op << " " << name_of(T) << ", " << training;
    }
}

TEST(L03_OpContract, OnlyTheFirstGradientOfASliceIsFilledWithZeros) {
  for (const char* name : {"slice", "split"}) {
    Context context("meta");
    context.device.meter().keep_trace();
    std::vector<Leaf> leaves;
    const std::vector<Tensor> x = inputs_of(op_of(name), 1, leaves);
    for (const int64_t fills : {1, 0}) {
      Tape tape;
      const Tensor y = op_of(name).f(x), dy = empty_like(y, "dy");
      context.device.meter().reset_totals();
      tape.backward(y, dy);
      EXPECT_EQ(context.device.meter().totals(OpClass::Elementwise).calls, 1 + fills) << name;
    }
  }
}

// The gradients of bf16 parameters in fp32: the cost of a kernel depends on its activations, the
// cost of a fill on the gradient, and the cost of passing a gradient on depends on both.
TEST(L04_OpContract, GradientsInFp32CostWhatTheyTake) {
  constexpr DType T = DType::BF16, G = DType::F32;
  const std::map<std::string, Costs> expected{
      {"add", Costs(2, cost::cast(12, T, G))},
      {"add_positions", {cost::cast(30, T, G), cost::bias_bwd({2, 15}, T), cost::fill(5, G)}},
      {"embedding", {cost::embedding_bwd({4, 3}, T)}},
      {"expert_linear",
       {cost::matmul(of_experts(product(4, 4, 5)), T), cost::matmul(of_experts(product(5, 4, 4)), T)}},
      {"layernorm", {cost::layernorm_bwd({4, 5}, T)}},
      {"linear",
       {cost::matmul(product(4, 3, 6), T), cost::matmul(product(6, 3, 4), T), cost::bias_bwd({4, 6}, T)}},
      {"multiply", Costs(2, cost::multiply(12, T))},
      {"rmsnorm", {cost::rmsnorm_bwd({4, 5}, T)}},
      {"slice", {cost::cast(12, T, G), cost::fill(24, G)}},
      {"split", {cost::cast(12, T, G), cost::fill(24, G)}}};
  for (const auto& [name, costs] : expected) {
    const Op& op = op_of(name);
    Context context("meta");
    std::vector<Leaf> leaves(op.shapes.size());
    for (Leaf& leaf : leaves) leaf.dtype = G;
    const std::vector<Tensor> x = inputs_of(op, (1u << op.shapes.size()) - 1, leaves, T);
    Tape tape;
    const Tensor y = op.f(x), dy = empty_like(y, "dy");
    context.device.meter().reset_totals();
    tape.backward(y, dy);
    EXPECT_EQ(context.device.meter().trace(), counted(costs)) << op;
  }
}

}  // namespace
}  // namespace gradus
