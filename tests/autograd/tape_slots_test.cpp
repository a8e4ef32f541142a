// Tape::backward from a slot (src/autograd/tape.h): the tensor itself may have ended.
#include <cmath>

#include "src/ops/ops.h"
#include "src/optim/optimizer.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

struct L20_TapeSlots : TapeTest {
  std::vector<double> gradient_of(const std::function<void(Tape&, Tensor)>& backward, const Shape& x_shape,
                                  const std::function<Tensor(const Tensor&)>& f) {
    Leaf own;
    Tensor x = tensor({1, -2, 3, 0.5, -0.25, 2}, x_shape);
    attach(x, own, "x");
    Tape tape;
    backward(tape, f(x));
    return to_host<double>(own.grad);
  }
  Tensor dy(const Shape& shape) { return tensor({0.5, 1, -1, 2, 3, -4}, shape); }
};

TEST_F(L20_TapeSlots, GiveTheGradientsThatTheTensorGives) {
  const Shape shape{2, 3};
  const std::vector<std::function<Tensor(const Tensor&)>> all{
      [](const Tensor& x) { return gelu(x); }, [](const Tensor& x) { return scale(tanh(x), 3); },
      [](const Tensor& x) { return add(x, gelu(x)); },
      [](const Tensor& x) {
        return gelu(x).reshape({3, 2});
      }};
  for (const auto& f : all) {
    const auto expected =
        gradient_of([&](Tape& t, const Tensor& y) { t.backward(y, dy(y.shape())); }, shape, f);
    const auto kept = gradient_of(
        [&](Tape& t, const Tensor& y) {
          t.backward(GradSlot{y.slot, y.shape(), y.dtype()}, dy(y.shape()));
        },
        shape, f);
    const auto gone = gradient_of(
        [&](Tape& t, Tensor y) {
          const GradSlot slot{y.slot, y.shape(), y.dtype()};
          y = {};
          t.backward(slot, dy(slot.shape));
        },
        shape, f);
    const auto dropped = gradient_of(
        [&](Tape& t, const Tensor& y) {
          if (y.shares_storage()) return t.backward(y, dy(y.shape()));  // a view, or saved
          y.storage().drop("elsewhere");
          t.backward(GradSlot{y.slot, y.shape(), y.dtype()}, dy(y.shape()));
        },
        shape, f);
    EXPECT_EQ(kept, expected);
    EXPECT_EQ(gone, expected);
    EXPECT_EQ(dropped, expected);
  }
}

TEST_F(L20_TapeSlots, OfAScalarTakeTheLossScaleByDefault) {
  const Tensor w = trains(tensor({2, 3}, {1, 2}));
  start_loss_scaling(context.device, 64);
  for (int k = 0; k < 2; ++k) {
    leaf.zero();
    Tape tape;
    Tensor loss = cross_entropy(w, ids_of({0}, {1}));
    const GradSlot slot{loss.slot, loss.shape(), loss.dtype()};
    const bool by_slot = k == 1;
    if (by_slot)
      loss = {}, tape.backward(slot, {});
    else
      tape.backward(loss);
    const double p = 1 / (1 + std::exp(-1.0));
    EXPECT_NEAR(to_host<double>(leaf.grad)[1], 64 * p, 1e-4);
  }
}

TEST_F(L20_TapeSlots, RefuseAGradientOfADifferentSizeOrDtype) {
  const Tensor x = trains(tensor({1, 2, 3, 4, 5, 6}, {2, 3}));
  for (const Tensor& wrong :
       {tensor({1, 2}, {2}), Tensor(), tensor({1, 2, 3, 4, 5, 6}, {2, 3}, DType::BF16)}) {
    Tape tape;
    const Tensor y = gelu(x);
    expect_refused("", [&] { tape.backward(GradSlot{y.slot, y.shape(), y.dtype()}, wrong); });
  }
  EXPECT_EQ(context.tape(), nullptr);
}

TEST_F(L20_TapeSlots, RefuseASlotThatWantsNoGradientAndASecondCall) {
  const Tensor x = trains(tensor({1, 2, 3, 4, 5, 6}, {2, 3}));
  Tape tape;
  const Tensor y = gelu(x), z = gelu(tensor({1, 2, 3, 4, 5, 6}, {2, 3}));
  expect_refused("", [&] { tape.backward(GradSlot{z.slot, z.shape(), z.dtype()}, dy({2, 3})); });
  Tape second;
  const Tensor u = gelu(x);
  const GradSlot slot{u.slot, u.shape(), u.dtype()};
  second.backward(slot, dy({2, 3}));
  expect_refused("", [&] { second.backward(slot, dy({2, 3})); });
}

// The memory of y is freed before the backward pass.
TEST_F(L20_TapeSlots, LetTheTensorsMemoryGo) {
  const Tensor x = trains(tensor(std::vector<double>(4096, 1), {64, 64}));
  Tape tape;
  Tensor y = gelu(x);
  const GradSlot slot{y.slot, y.shape(), y.dtype()};
  const int64_t with = context.device.meter().now()[Kind::Temporary];
  y = {};
  EXPECT_EQ(context.device.meter().now()[Kind::Temporary], with - 4096 * 4);
  tape.backward(slot, tensor(std::vector<double>(4096, 1), {64, 64}));
  EXPECT_TRUE(leaf.written);
}

}  // namespace
}  // namespace gradus
