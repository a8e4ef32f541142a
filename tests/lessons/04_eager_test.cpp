// PyTorch's eager mode as described in lessons/published/eager.h: which tensors are allocated, in which
// order, and which stay alive.
#include <gtest/gtest.h>

#include "lessons/published/eager.h"

namespace gradus {
namespace {

class L04_Eager : public ::testing::Test {
 protected:
  L04_Eager() { meta.allocator().keep_history(); }

  EagerTensor loss_of(const EagerTensor& x) { return eager.op("loss", {}, DType::F32, {Eager::fresh(x)}); }
  int64_t bytes(Kind k) { return meta.meter().now()[k]; }
  // The names and shapes of the tensors that are allocated while f runs.
  template <class F>
  std::string allocated_by(F f) {
    const size_t before = meta.allocator().history().size();
    f();
    std::string names;
    for (size_t i = before; i < meta.allocator().history().size(); ++i) {
      const MemoryEvent& e = meta.allocator().history()[i];
      if (e.action == Action::Alloc) names += e.name + e.shape.text() + " ";
    }
    return names;
  }

  Device meta{"meta"};
  Eager eager{meta, DType::F32, false};
  EagerTensor w = eager.parameter({8, 32}, "w");  // 1 KiB
};

TEST_F(L04_Eager, TwoGradientsOfAnIntermediateResultAreAddedInAThirdTensor) {
  const EagerTensor h = eager.map("h", w);
  const EagerTensor passed = eager.add(h, h), made = eager.matmul("product", h, h, {8, 32});
  EXPECT_EQ(allocated_by([&] { eager.backward(loss_of(eager.add(passed, made))); }),
            "add[8,32] loss[] gradient[] gradient[8,32] "     // gradients of the loss and of the outer sum
            "gradient[8,32] gradient[8,32] "                  // of the two inputs of the product;
            "sum of gradients[8,32] "                         // both are h, so these are added;
            "sum of gradients[8,32] sum of gradients[8,32] "  // `passed` passes its gradient on to h, twice;
            "gradient[8,32] ");                               // of w
}

TEST_F(L04_Eager, AParametersFirstGradientStaysAndLaterOnesAreAddedToIt) {
  const EagerTensor y = eager.add(eager.map("a", w), eager.map("b", w));
  EXPECT_EQ(allocated_by([&] { eager.backward(loss_of(y)); }),
            "loss[] gradient[] gradient[8,32] gradient[8,32] gradient[8,32] ");
  EXPECT_EQ(bytes(Kind::Gradient), 1024);
  EXPECT_EQ(allocated_by([&] { eager.backward(loss_of(eager.map("c", w))); }),
            "c[8,32] loss[] gradient[] gradient[8,32] gradient[8,32] ");
  EXPECT_EQ(bytes(Kind::Gradient), 1024) << "a second backward pass adds to the gradient";
  eager.drop_gradients();
  EXPECT_EQ(bytes(Kind::Gradient), 0);
}

TEST_F(L04_Eager, BackwardLeavesTheParametersAndTheirGradients) {
  {
    const EagerTensor x = eager.map("x", w);
    eager.backward(loss_of(eager.dropout("dropout", eager.gelu(x))));
    EXPECT_EQ(bytes(Kind::Activation), 1024) << "a variable of the program keeps its tensor alive";
  }
  EXPECT_EQ(bytes(Kind::Activation) + bytes(Kind::Temporary), 0);
  EXPECT_EQ(bytes(Kind::Weight), 1024);
  EXPECT_EQ(bytes(Kind::Gradient), 1024);
}

// At the peak y, the tensor that gelu saved, and the two gradients of x are alive. When these are summed into
// a third tensor, the saved tensor is already freed.
TEST_F(L04_Eager, SavedTensorsAreFreedBeforeGradientsAreSummed) {
  const auto forward = [&] {
    const EagerTensor x = eager.map("x", w);
    return eager.add(eager.gelu(x), eager.gelu(x));
  };
  const EagerTensor y = forward();
  meta.meter().reset_peak();
  eager.backward(y);
  const Usage& peak = meta.meter().at_peak();
  EXPECT_EQ(peak[Kind::Activation] + peak[Kind::Temporary], 4 * 1024 + 4)
      << "four tensors and the gradient of y";
}

TEST_F(L04_Eager, TensorsThatEachOperationSaves) {
  const EagerTensor x = eager.map("x", w);
  const auto saved = [&](const auto& op) {
    const int64_t before = bytes(Kind::Activation);
    op();
    return bytes(Kind::Activation) - before;
  };
  EXPECT_EQ(saved([&] { eager.dropout("d", x); }), 256) << "the mask, one byte per element";
  EXPECT_EQ(saved([&] { eager.tanh(x); }), 1024) << "its output";
  EXPECT_EQ(saved([&] { eager.softmax("s", x); }), 1024) << "its output";
  EXPECT_EQ(saved([&] { eager.gelu(x); }), 1024) << "its input";
  EXPECT_EQ(saved([&] { eager.gelu(x); }), 0) << "its input is saved already";
  EXPECT_EQ(saved([&] { eager.linear("y", x, {w, {}}); }), 0) << "its input again; weights not counted";
  const EagerLinear norm = {w, {}};
  const EagerTensor other = eager.map("other", w);
  EXPECT_EQ(saved([&] { eager.layer_norm(other, norm); }), 1024 + 2 * 8 * 4)
      << "its input; mean and 1/deviation of each row";
  EXPECT_EQ(saved([&] { eager.add(eager.map("a", w), eager.map("b", w)); }), 0);
  EXPECT_EQ(saved([&] { eager.embedding(w, x.data); }), 0) << "ids are data";

  Eager old(meta, DType::F32, true);  // PyTorch 1.10
  const EagerTensor y = old.map("y", old.parameter({8, 32}, "v"));
  EXPECT_EQ(saved([&] { old.softmax("s", y); }), 2048) << "its input and its output";
}

TEST_F(L04_Eager, TheFirstUpdateAllocatesStatesAndEveryUpdateADenominator) {
  eager.parameter({4}, "b");
  EXPECT_EQ(allocated_by([&] { eager.adamw_step(); }),
            "w.m[8,32] w.v[8,32] w.denominator[8,32] b.m[4] b.v[4] b.denominator[4] ");
  EXPECT_EQ(bytes(Kind::Optimizer), 2 * (1024 + 16));
  EXPECT_EQ(allocated_by([&] { eager.adamw_step(); }), "w.denominator[8,32] b.denominator[4] ");
  EXPECT_EQ(bytes(Kind::Temporary), 0);
}

TEST_F(L04_Eager, ParametersComeBeforeOperations) {
  eager.map("x", w);
  EXPECT_THROW(eager.parameter({1}, "late"), Error);
}

}  // namespace
}  // namespace gradus
