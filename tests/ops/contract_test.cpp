// What each op saves for backward, for every subset of its inputs that train: only what a wanted gradient
// needs. And what it counts: the costs of the kernels that it is made of, and of no others.
#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "tests/ops/ops_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Costs = std::vector<Cost>;
struct Contract {
  const char* name;  // of an op in ops_testing.h
  // What is saved if the inputs in `training` train; each has a bit and is called "0", "1", "2".
  std::string (*saves)(unsigned training);
  Costs (*forward)(DType T);
  Costs (*backward)(DType T, unsigned training);
};
std::ostream& operator<<(std::ostream& out, const Contract& c) { return out << c.name; }
const Op& op_of(std::string_view name) {
  return *std::find_if(kOps.begin(), kOps.end(), [&](const Op& op) { return op.name == name; });
}

constexpr AttentionShape heads(Mask mask, int64_t H = 2, int64_t KV = 2) {
  return {.B = 2, .H = H, .KV = KV, .T = 3, .D = 2, .qkv = {}, .y = {}, .scale = 1, .mask = mask};
}
constexpr RotaryShape kTurned{.B = 2, .T = 3, .H = 2, .D = 4, .dims = 4};

MatmulShape product(int64_t M, int64_t N, int64_t K) {
  return {.M = M, .N = N, .K = K, .lda = K, .ldb = N, .ldc = N};
}
// Of the 4 rows of the parts that train.
Costs columns_of_parts(DType T, unsigned training) {
  Costs costs;
  for (const int64_t cols : {3, 1, 2}) {
    if (training & 1) costs.push_back(cost::cast(4 * cols, T, T));
    training >>= 1;
  }
  return costs;
}
std::string nothing(unsigned) { return ""; }
std::string input(unsigned) { return "0 "; }
const std::vector<Contract> kContracts{
    {"add", nothing, [](DType T) { return Costs{cost::add(12, T)}; },
     [](DType T, unsigned training) { return Costs(size_t(std::popcount(training)), cost::cast(12, T, T)); }},
    {"add_layernorm",
     [](unsigned training) -> std::string { return training & 7 ? "add 2 layernorm.stats " : ""; },
     [](DType T) {
       return Costs{cost::add_layernorm_fwd({4, 5}, T)};
     },
     [](DType T, unsigned training) {
       Costs costs{training & 7 ? cost::add_layernorm_bwd({4, 5}, T) : cost::bias_bwd({4, 5}, T)};
       for (const unsigned bit : {1u, 2u})
         if (training & bit) costs.push_back(cost::cast(20, T, T));  // to a parameter
       return costs;
     }},
    {"bias_gelu", [](unsigned) -> std::string { return "0 1 "; },
     [](DType T) {
       return Costs{cost::bias_gelu_fwd({3, 4}, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::bias_gelu_bwd({3, 4}, T)};
     }},
    {"add_positions", nothing,
     [](DType T) {
       return Costs{cost::bias_fwd({2, 15}, T)};
     },
     [](DType T, unsigned training) {
       Costs costs;
       if (training & 1) costs.push_back(cost::cast(30, T, T));
       if (training & 2) costs.insert(costs.end(), {cost::bias_bwd({2, 15}, T), cost::fill(5, T)});
       return costs;
     }},
    {"attention_plain", [](unsigned) -> std::string { return "0 attention.probs "; },
     [](DType T) { return Costs{cost::attention_plain_fwd(heads(Mask::Causal), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_plain_bwd(heads(Mask::Causal), T)}; }},
    {"attention_plain_dropped", [](unsigned) -> std::string { return "0 attention.probs "; },
     [](DType T) { return Costs{cost::attention_plain_fwd(heads(Mask::None), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_plain_bwd(heads(Mask::None), T)}; }},
    {"attention_flash", [](unsigned) -> std::string { return "0 attention attention.lse "; },
     [](DType T) { return Costs{cost::attention_flash_fwd(heads(Mask::Causal), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_flash_bwd(heads(Mask::Causal), T)}; }},
    {"attention_flash_dropped", [](unsigned) -> std::string { return "0 attention attention.lse "; },
     [](DType T) { return Costs{cost::attention_flash_fwd(heads(Mask::None), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_flash_bwd(heads(Mask::None), T)}; }},
    {"attention_plain_grouped", [](unsigned) -> std::string { return "0 attention.probs "; },
     [](DType T) { return Costs{cost::attention_plain_fwd(heads(Mask::Causal, 6, 2), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_plain_bwd(heads(Mask::Causal, 6, 2), T)}; }},
    {"attention_plain_dropped_grouped", [](unsigned) -> std::string { return "0 attention.probs "; },
     [](DType T) { return Costs{cost::attention_plain_fwd(heads(Mask::None, 4, 1), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_plain_bwd(heads(Mask::None, 4, 1), T)}; }},
    {"attention_flash_grouped", [](unsigned) -> std::string { return "0 attention attention.lse "; },
     [](DType T) { return Costs{cost::attention_flash_fwd(heads(Mask::Causal, 6, 2), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_flash_bwd(heads(Mask::Causal, 6, 2), T)}; }},
    {"attention_flash_dropped_grouped", [](unsigned) -> std::string { return "0 attention attention.lse "; },
     [](DType T) { return Costs{cost::attention_flash_fwd(heads(Mask::None, 4, 1), T)}; },
     [](DType T, unsigned) { return Costs{cost::attention_flash_bwd(heads(Mask::None, 4, 1), T)}; }},
    {"cross_entropy", [](unsigned) -> std::string { return "0 ids cross_entropy.lse "; },
     [](DType T) {
       return Costs{cost::cross_entropy_fwd({4, 5}, T)};
     },
     [](DType T, unsigned) {  // the logits are the test's, so a copy is written over
       return Costs{cost::cast(20, T, T), cost::cross_entropy_bwd_inplace({4, 5}, T), cost::cast(20, T, T)};
     }},
    {"dropout", nothing,
     [](DType T) {
       return Costs{cost::dropout({3, 10}, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::dropout({3, 10}, T)};
     }},
    {"embedding", [](unsigned) -> std::string { return "ids "; },
     [](DType T) {
       return Costs{cost::embedding_fwd({4, 3}, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::embedding_bwd({4, 3}, T)};
     }},
    {"concatenate", nothing, [](DType T) { return columns_of_parts(T, 7); }, columns_of_parts},
    {"multiply",
     [](unsigned training) { return std::string(training & 2 ? "0 " : "") + (training & 1 ? "1 " : ""); },
     [](DType T) { return Costs{cost::multiply(12, T)}; },
     [](DType T, unsigned training) {
       return Costs(size_t(std::popcount(training)), cost::multiply(12, T));
     }},
    {"slice", nothing, [](DType T) { return Costs{cost::cast(12, T, T)}; },
     [](DType T, unsigned) {
       return Costs{cost::fill(24, T), cost::cast(12, T, T)};
     }},
    {"split", nothing,
     [](DType T) {
       return Costs{cost::cast(4, T, T), cost::cast(12, T, T), cost::cast(8, T, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::fill(24, T), cost::cast(12, T, T)};
     }},
    {"gelu", input, [](DType T) { return Costs{cost::gelu_fwd(14, T)}; },
     [](DType T, unsigned) { return Costs{cost::gelu_bwd(14, T)}; }},
    {"gelu_erf", input, [](DType T) { return Costs{cost::gelu_erf_fwd(14, T)}; },
     [](DType T, unsigned) { return Costs{cost::gelu_erf_bwd(14, T)}; }},
    {"layernorm", [](unsigned training) -> std::string { return training & 3 ? "0 1 layernorm.stats " : ""; },
     [](DType T) {
       return Costs{cost::layernorm_fwd({4, 5}, T)};
     },
     [](DType T, unsigned training) {
       return Costs{training & 3 ? cost::layernorm_bwd({4, 5}, T) : cost::bias_bwd({4, 5}, T)};
     }},
    {"linear",
     [](unsigned training) { return std::string(training & 2 ? "0 " : "") + (training & 1 ? "1 " : ""); },
     [](DType T) {
       return Costs{cost::bias_fwd({4, 6}, T), cost::matmul(product(4, 6, 3), T)};
     },
     [](DType T, unsigned training) {
       Costs costs;
       if (training & 1) costs.push_back(cost::matmul(product(4, 3, 6), T));
       if (training & 2) costs.push_back(cost::matmul(product(6, 3, 4), T));
       if (training & 4) costs.push_back(cost::bias_bwd({4, 6}, T));
       return costs;
     }},
    {"rotary", nothing, [](DType T) { return Costs{cost::rotary(kTurned, T)}; },
     [](DType T, unsigned) { return Costs{cost::rotary(kTurned, T)}; }},
    {"scale", nothing, [](DType T) { return Costs{cost::scale(14, T)}; },
     [](DType T, unsigned) { return Costs{cost::scale(14, T)}; }},
    {"softmax", [](unsigned) -> std::string { return "softmax "; },
     [](DType T) {
       return Costs{cost::softmax_fwd({3, 5}, T)};
     },
     [](DType T, unsigned) {
       return Costs{cost::softmax_bwd({3, 5}, T)};
     }},
    {"tanh", [](unsigned) -> std::string { return "tanh "; },
     [](DType T) { return Costs{cost::tanh_fwd(14, T)}; },
     [](DType T, unsigned) { return Costs{cost::tanh_bwd(14, T)}; }},
};

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
  for (unsigned i = 0; i < subsets * kKinds; ++i) {  // of inputs of each kind
    const unsigned training = i % subsets;
    Context context("meta");
    std::vector<Leaf> leaves;
    const std::vector<Tensor> x = inputs_of(op, training, leaves, DType::F32, Kind(i / subsets));
    Tape tape;
    const Tensor y = op.f(x);
    ASSERT_EQ(tape.nodes().size(), training == 0 ? 0u : 1u) << "nothing to train, nothing to record";
    if (training == 0) continue;
    const std::string name = op.name;
    EXPECT_EQ(tape.nodes()[0].op, name.substr(0, std::min(name.find("_dropped"), name.find("_grouped"))));
    std::string saved;
    for (const Saved& s : tape.nodes()[0].saved)
      if (s.tensor.defined()) {
        saved += s.tensor.storage().name() + " ";
        EXPECT_NE(s.tensor.storage().kind(), Kind::Temporary) << "what is saved is an activation";
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
    if (!saved.defined()) continue;  // an input that was not given
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

// The gradients of bf16 parameters in fp32: a kernel costs what its activations say, a fill what it fills,
// and a gradient that is passed on what both are.
TEST(L04_OpContract, GradientsInFp32CostWhatTheyTake) {
  constexpr DType T = DType::BF16, G = DType::F32;
  const std::map<std::string, Costs> expected{
      {"add", Costs(2, cost::cast(12, T, G))},
      {"add_positions", {cost::cast(30, T, G), cost::bias_bwd({2, 15}, T), cost::fill(5, G)}},
      {"embedding", {cost::embedding_bwd({4, 3}, T)}},
      {"layernorm", {cost::layernorm_bwd({4, 5}, T)}},
      {"linear",
       {cost::matmul(product(4, 3, 6), T), cost::matmul(product(6, 3, 4), T), cost::bias_bwd({4, 6}, T)}},
      {"multiply", Costs(2, cost::multiply(12, T))},
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
