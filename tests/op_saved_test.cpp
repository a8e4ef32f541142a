// What each op saves for backward, for every subset of its inputs that train: only what a wanted gradient
// needs.
#include <gtest/gtest.h>

#include "src/ops/ops.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

Tensor ids(const std::vector<int32_t>& values, const Shape& shape) {
  return from_host(current().device, values, shape, DType::I32, Kind::Data, "ids");
}

using In = const std::vector<Tensor>&;
struct Op {
  const char* name;
  std::vector<Shape> shapes;  // of the inputs that can train: "0", "1", "2"
  Tensor (*f)(In);
  // What is saved if the inputs in `training` train; each has a bit.
  std::string (*saves)(unsigned training);
};
std::ostream& operator<<(std::ostream& out, const Op& op) { return out << op.name; }

std::string nothing(unsigned) { return ""; }
const std::vector<Op> kOps{
    {"add", {{2, 3}, {2, 3}}, [](In x) { return add(x[0], x[1]); }, nothing},
    {"add_positions", {{2, 3, 5}, {4, 5}}, [](In x) { return add_positions(x[0], x[1]); }, nothing},
    {"attention_plain",
     {{2, 3, 12}},
     [](In x) { return attention_plain(x[0], 2, Mask::Causal, 0.5); },
     [](unsigned) -> std::string { return "0 attention.probs "; }},
    {"attention_flash",
     {{2, 3, 12}},
     [](In x) { return attention_flash(x[0], 2, Mask::Causal, 0.5); },
     [](unsigned) -> std::string { return "0 attention attention.lse "; }},
    {"cross_entropy",
     {{2, 5}},
     [](In x) {
       return cross_entropy(x[0], ids({0, 4}, {2}));
     },
     [](unsigned) -> std::string { return "0 ids cross_entropy.lse "; }},
    {"dropout", {{3, 5}}, [](In x) { return dropout(x[0], 0.3); }, nothing},
    {"embedding",
     {{5, 3}},
     [](In x) {
       return embedding(x[0], ids({2, 0}, {2}));
     },
     [](unsigned) -> std::string { return "ids "; }},
    {"first_token", {{3, 2, 4}}, [](In x) { return first_token(x[0]); }, nothing},
    {"gelu", {{7}}, [](In x) { return gelu(x[0]); }, [](unsigned) -> std::string { return "0 "; }},
    {"gelu_erf", {{7}}, [](In x) { return gelu_erf(x[0]); }, [](unsigned) -> std::string { return "0 "; }},
    {"layernorm",
     {{4, 5}, {5}, {5}},
     [](In x) { return layernorm(x[0], x[1], x[2]); },
     [](unsigned training) -> std::string { return training & 3 ? "0 1 layernorm.stats " : ""; }},
    {"linear",
     {{4, 3}, {6, 3}, {6}},
     [](In x) { return linear(x[0], x[1], x[2]); },
     [](unsigned training) { return std::string(training & 2 ? "0 " : "") + (training & 1 ? "1 " : ""); }},
    {"rotary", {{2, 3, 24}}, [](In x) { return rotary(x[0], 2, 4); }, nothing},
    {"scale", {{7}}, [](In x) { return scale(x[0], 2); }, nothing},
    {"softmax",
     {{3, 5}},
     [](In x) { return softmax(x[0]); },
     [](unsigned) -> std::string { return "softmax "; }},
    {"tanh", {{7}}, [](In x) { return tanh(x[0]); }, [](unsigned) -> std::string { return "tanh "; }},
};

struct L03_OpSaves : ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, L03_OpSaves, ::testing::ValuesIn(kOps),
                         [](const auto& info) { return std::string(info.param.name); });

std::vector<Tensor> inputs_of(const Op& op, unsigned training, std::vector<Leaf>& leaves) {
  std::vector<Tensor> x;
  leaves.resize(op.shapes.size());
  for (size_t i = 0; i < op.shapes.size(); ++i) {
    x.emplace_back(current().device, op.shapes[i], DType::F32, Kind::Temporary, std::to_string(i));
    if (training >> i & 1) attach(x[i], leaves[i], std::to_string(i));
  }
  return x;
}

TEST_P(L03_OpSaves, OnlyWhatAWantedGradientNeeds) {
  const Op& op = GetParam();
  for (unsigned training = 0; training < 1u << op.shapes.size(); ++training) {
    Context context("meta");
    std::vector<Leaf> leaves;
    const std::vector<Tensor> x = inputs_of(op, training, leaves);
    Tape tape;
    const Tensor y = op.f(x);
    ASSERT_EQ(tape.nodes().size(), training == 0 ? 0u : 1u) << "nothing to train, nothing to record";
    if (training == 0) continue;
    std::string saved;
    for (const Saved& s : tape.nodes()[0].saved)
      if (s.tensor.defined()) {
        saved += s.tensor.storage().name() + " ";
        EXPECT_NE(s.tensor.storage().kind(), Kind::Temporary) << "what is saved is an activation";
      }
    EXPECT_EQ(saved, op.saves(training)) << op << ", inputs that train " << training;
  }
}

TEST_P(L03_OpSaves, AWriteToAnyOfItIsFoundOut) {
  const Op& op = GetParam();
  for (size_t k = 0, count = 1; k < count; ++k) {
    Context context("meta");
    std::vector<Leaf> leaves;
    const std::vector<Tensor> x = inputs_of(op, (1u << op.shapes.size()) - 1, leaves);
    Tape tape;
    const Tensor y = op.f(x), dy = empty_like(y, "dy");
    count = tape.nodes()[0].saved.size();
    if (k == count) break;
    Tensor saved = tape.nodes()[0].saved[k].tensor;
    saved.add();
    expect_refused("'" + saved.storage().name() + "' was written to", [&] { tape.backward(y, dy); });
  }
}

}  // namespace
}  // namespace gradus
