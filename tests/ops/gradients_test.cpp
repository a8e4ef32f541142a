// Every op, with every subset of its inputs trainable and with views before and after it: compared with
// finite differences in fp64, and in fp32 on every device with the fp64 gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "src/autograd/gradcheck.h"
#include "src/core/rng.h"
#include "tests/devices.h"
#include "tests/ops/ops_testing.h"

namespace gradus {
namespace {

enum class View { None, OfParameter, OfOutput, OfResult, Twice };
constexpr View kViews[] = {View::None, View::OfParameter, View::OfOutput, View::OfResult, View::Twice};
Shape flat(const Shape& s) { return {s.numel()}; }

// Applies the op to inputs of its own shapes; or to reshaped flat parameters; or to reshaped outputs of an
// earlier op; or reshapes its result for a later op; or applies it twice to the same inputs.
Tensor apply(const Op& op, View view, In given) {
  std::vector<Tensor> x;
  for (size_t i = 0; i < given.size(); ++i)
    x.push_back(view == View::OfOutput ? scale(given[i], 1).reshape(op.shapes[i])
                                       : given[i].reshape(op.shapes[i]));
  const Tensor y = op.f(x);
  if (view == View::Twice) return add(y, scale(op.f(x), -0.25));
  return view == View::OfResult ? scale(y.reshape(flat(y.shape())), 1) : y;
}

// Random inputs; input i trains if bit i of `training` is set.
std::vector<GradcheckInput> inputs_of(const Op& op, View view, unsigned training) {
  std::vector<GradcheckInput> inputs;
  for (size_t i = 0; i < op.shapes.size(); ++i) {
    const bool is_flat = view == View::OfParameter || view == View::OfOutput;
    GradcheckInput in{is_flat ? flat(op.shapes[i]) : op.shapes[i], {}, (training >> i & 1) != 0};
    Rng rng(3, i);
    for (int64_t e = 0; e < in.shape.numel(); ++e) in.values.push_back(rng.normal());
    inputs.push_back(in);
  }
  return inputs;
}
unsigned all_of(const Op& op) { return (1u << op.shapes.size()) - 1; }

struct L03_OpGradients : ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, L03_OpGradients, ::testing::ValuesIn(kOps),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(L03_OpGradients, EverySubsetOfInputsWithViewsBeforeAndAfter) {
  const Op& op = GetParam();
  Context context("cpu", 5);
  for (const View view : kViews)
    for (unsigned training = 1; training <= all_of(op); ++training) {
      const auto f = [&](In x) { return apply(op, view, x); };
      const GradcheckResult result = gradcheck(f, inputs_of(op, view, training));
      EXPECT_TRUE(result.passed()) << op << ", view " << int(view) << ", inputs that train " << training
                                   << ": " << result.where;
      for (size_t i = 0; i < op.shapes.size(); ++i)
        if (training >> i & 1) {
          EXPECT_FALSE(gradcheck(f, inputs_of(op, view, training), 1, 1.01, int(i)).passed())
              << op << ": a 1 % wrong gradient of input " << i << " passed";
        }
    }
}

// The gradients of all inputs (none for one that does not train), each added twice; the gradients of the
// inputs in `fp32` have that dtype.
std::vector<std::vector<double>> gradients(const char* device, DType t, const Op& op, View view,
                                           unsigned training, unsigned fp32 = 0) {
  Context context(device, 5);
  std::vector<Tensor> x;
  std::vector<Leaf> leaves(op.shapes.size());
  for (const GradcheckInput& in : inputs_of(op, view, training)) {
    x.push_back(from_host(context.device, in.values, in.shape, t, Kind::Weight, "x"));
    if (fp32 >> (x.size() - 1) & 1) leaves[x.size() - 1].dtype = DType::F32;
    if (in.trains) attach(x.back(), leaves[x.size() - 1], "x");
  }
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape;
    const Tensor y = apply(op, view, x);
    std::vector<double> dy;
    Rng rng(7, pass);
    for (int64_t i = 0; i < y.numel(); ++i) dy.push_back(rng.normal());
    tape.backward(y, from_host(context.device, dy, y.shape(), y.dtype(), Kind::Temporary, "dy"));
  }
  std::vector<std::vector<double>> result;
  for (const Leaf& leaf : leaves) {
    result.emplace_back(leaf.grad.defined() ? to_host<double>(leaf.grad) : std::vector<double>());
  }
  return result;
}

using Values = std::vector<std::vector<double>>;
void expect_near(const Values& got, const Values& expected, double error, const std::string& what) {
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size()) << what << ", input " << i;
    for (size_t e = 0; e < got[i].size(); ++e)  // sums of up to a dozen rounded products
      ASSERT_NEAR(got[i][e], expected[i][e], error * (2 + std::abs(expected[i][e])))
          << what << ", input " << i << ", element " << e;
  }
}

TEST_P(L03_OpGradients, OnEveryDeviceAndTypeAsInFp64) {
  const Op& op = GetParam();
  for (const View view : kViews)
    for (unsigned training = 1; training <= all_of(op); ++training) {
      const auto expected = gradients("cpu", DType::F64, op, view, training);
      for (const char* device : devices_with_data())
        for (const auto& [t, epsilon] : {std::pair(DType::F32, 0x1p-23), std::pair(DType::BF16, 0x1p-7)}) {
          std::ostringstream what;
          what << op << " on " << device << " in " << name_of(t) << ", view " << int(view)
               << ", inputs that train " << training;
          expect_near(gradients(device, t, op, view, training), expected, 16 * epsilon, what.str());
          if (t == DType::BF16 && (training & op.weights) != 0 && view != View::OfOutput)
            expect_near(gradients(device, t, op, view, training, op.weights), expected, 16 * epsilon,
                        what.str() + ", gradients of weights in fp32");
        }
    }
}

// Bytes must not depend on the order in which a compiler evaluates arguments: gradients are allocated in the
// order of the inputs, then a kernel's scratch. All allocations, forward and backward, are in the op's range.
TEST_P(L03_OpGradients, GradientsAreAllocatedInTheOrderOfInputsThenScratch) {
  const Op& op = GetParam();
  Context context("meta", 5);
  Allocator& allocator = context.device.allocator();
  std::vector<Tensor> x;
  std::vector<Leaf> leaves(op.shapes.size());
  for (size_t i = 0; i < op.shapes.size(); ++i) {
    x.emplace_back(context.device, op.shapes[i], DType::F32, Kind::Weight, "x");
    attach(x[i], leaves[i], std::to_string(i));
  }
  allocator.keep_history();
  const auto& history = allocator.history();
  const size_t forward = history.size();
  Tape tape;
  const Tensor y = op.f(x);
  const std::string range = tape.nodes()[0].op;
  const size_t backward = history.size();
  tape.backward(y, Tensor(context.device, y.shape(), y.dtype(), Kind::Data, "dy"));
  std::string order, in_order;
  for (size_t i = 0; i < op.shapes.size(); ++i) in_order += std::to_string(i) + ".grad ";
  const std::string name = op.name;
  if (name == "linear_cross_entropy") in_order = "0.grad ";  // forward computes the weight's gradient
  if (name == "add_layernorm")
    in_order = "2.grad 3.grad 0.grad 1.grad ";  // the gradient of one term is a copy of the other's
  int64_t scratch_in_use = 0, of_forward = 0;
  for (size_t i = forward; i < history.size(); ++i) {
    const bool scratch = history[i].name == "scratch";
    if (scratch && history[i].action == Action::Free) --scratch_in_use;
    if (history[i].action != Action::Alloc || history[i].kind == Kind::Data) continue;
    EXPECT_EQ(history[i].op, (i < backward ? "" : "backward/") + range) << history[i].name;
    if (i >= backward && history[i].kind == Kind::Gradient) order += history[i].name + " ";
    if (i >= backward && !scratch) {
      EXPECT_EQ(scratch_in_use, 0) << history[i].name << " was allocated after a kernel's scratch";
    }
    scratch_in_use += scratch, of_forward += i < backward;
  }
  EXPECT_EQ(order, in_order);
  EXPECT_GT(of_forward, 0);
  EXPECT_EQ(allocator.range(), "");
}

}  // namespace
}  // namespace gradus
