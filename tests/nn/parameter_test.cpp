// Parameters by name: their members, freezing, emptying gradients; and that an optimizer that refuses a step
// changes nothing.
#include "src/nn/parameter.h"

#include <gtest/gtest.h>

#include "src/nn/layers.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L03_Parameters : ::testing::Test {
  Context context{"cpu", 5};
  const Meter& meter = context.device.meter();
  Parameters parameters;
  Parameter& add_one(const char* name, const Precision& precision = {}) {
    Parameter& p = parameters.add(name, {1}, precision);
    copy_from_host(p.value, {1});
    return p;
  }
};

TEST_F(L03_Parameters, AnAddedOneIsWhatItsPrecisionAsksFor) {
  for (const bool master : {false, true}) {
    const Precision precision{DType::F16, DType::BF16, DType::F64, master};
    Parameter& p = parameters.add(master ? "b" : "a", {2, 3}, precision);
    EXPECT_EQ(p.name, master ? "b" : "a");
    EXPECT_EQ(p.value.dtype(), DType::F16);
    EXPECT_EQ(p.value.storage().kind(), Kind::Weight);
    EXPECT_EQ(p.value.storage().name(), p.name);
    EXPECT_EQ(p.leaf.dtype, DType::BF16);
    EXPECT_EQ(p.leaf.name, p.name);
    EXPECT_EQ(p.leaf.shape, (Shape{2, 3}));
    EXPECT_TRUE(!p.leaf.written && !p.leaf.grad.defined());
    EXPECT_EQ(p.precision, precision);
    EXPECT_TRUE(p.trainable());
    EXPECT_EQ(p.master.defined(), master);
    EXPECT_EQ(&p.kept(), master ? &p.master : &p.value);
    EXPECT_EQ(p.value.storage().version, 0u) << "add() must not write to the value";
  }
  const Parameter& p = parameters.find("b");
  EXPECT_EQ(p.master.dtype(), DType::F32);
  EXPECT_EQ(p.master.shape(), (Shape{2, 3}));
  EXPECT_EQ(p.master.storage().kind(), Kind::Master);
  EXPECT_EQ(p.master.storage().name(), "b.master");
  EXPECT_EQ(meter.now()[Kind::Gradient], 0) << "gradients get memory only in the first backward pass";
}

TEST_F(L03_Parameters, MatricesDecayWhateverTheyAreOf) {
  int i = 0;
  for (const auto& [shape, decays] : std::vector<std::pair<Shape, bool>>{
           {{}, false}, {{1}, false}, {{100}, false}, {{1, 1}, true}, {{2, 3}, true}, {{2, 3, 4}, true}})
    EXPECT_EQ(parameters.add(std::to_string(i++), shape, {}).decay, decays) << shape;
}

TEST_F(L03_Parameters, AreListedInTheOrderOfAddingAndCounted) {
  EXPECT_EQ(parameters.size(), 0u);
  EXPECT_EQ(parameters.numel(), 0);
  const Parameter& first = parameters.add("z", {2, 3}, {});
  for (int i = 99; i >= 0; --i) {
    std::string name = "a";
    parameters.add(name += std::to_string(i), {5}, {});
  }
  EXPECT_EQ(&first, &parameters.find("z")) << "references must stay valid";
  EXPECT_EQ(first.leaf.name, "z");
  EXPECT_EQ(*first.value.slot.leaf, &first.leaf);
  EXPECT_EQ(parameters.size(), 101u);
  parameters.set_trainable(parameters.find("a7"), false);
  EXPECT_EQ(parameters.numel(), 6 + 500) << "numel() includes frozen parameters";
  std::string order;
  for (const Parameter& p : parameters) order += p.name.substr(0, 2) + " ";
  EXPECT_TRUE(order.starts_with("z a9 a9 ") && order.ends_with(" a1 a0 ")) << order;
}

TEST_F(L03_Parameters, ANameIsTakenOnceAndUnknownOnesAreRefused) {
  expect_refused("parameter 'b' does not exist; there are: ", [&] { parameters.find("b"); });
  add_one("w"), add_one("w2");
  expect_refused("parameter 'w' is declared twice", [&] { parameters.add("w", {4}, {}); });
  EXPECT_EQ(parameters.size(), 2u);
  EXPECT_EQ(meter.now()[Kind::Weight], 8);
  expect_refused("parameter 'b' does not exist; there are: w, w2", [&] { parameters.find("b"); });
  expect_refused("parameter '' does not exist", [&] { parameters.find(""); });
  expect_refused("parameter 'W' does not exist", [&] { parameters.find("W"); });
}

TEST(L03_ParametersOfALimit, OneThatFindsNoMemoryIsNotThere) {  // its value fits, its master copy does not
  Context context("cpu", 5, int64_t(50) << 20);
  Parameters parameters;
  expect_refused("w.master", [&] { parameters.add("w", {10 << 20}, mixed(DType::BF16)); });
  EXPECT_EQ(parameters.size(), 0u);
  EXPECT_EQ(parameters.numel(), 0);
  EXPECT_EQ(context.device.meter().now()[Kind::Weight], 0);
  EXPECT_EQ(parameters.add("w", {2}, {}).value.numel(), 2)
      << "a parameter without memory must not keep its name";
}

TEST_F(L03_Parameters, ZeroGradEmptiesAllAlsoWhatWasFrozenAndFillsNothing) {
  Parameter &a = add_one("a"), &b = add_one("b"), &unused = add_one("unused");
  const auto pass = [&] { Tape().backward(add(scale(a.value, 2), scale(b.value, 3))); };
  pass();
  parameters.set_trainable(b, false);
  EXPECT_FALSE(b.trainable());
  const Storage* const buffer = &a.leaf.grad.storage();
  const uint32_t version = buffer->version;
  parameters.zero_grad();
  for (const Parameter* p : {&a, &b, &unused}) EXPECT_TRUE(!p->leaf.written) << p->name;
  EXPECT_EQ(buffer->version, version) << "zero_grad() must not fill gradients";
  EXPECT_EQ(&a.leaf.grad.storage(), buffer) << "zero_grad() must not free gradients";
  EXPECT_EQ(item(b.leaf.grad), 3);
  pass();
  EXPECT_EQ(item(a.leaf.grad), 2);
  EXPECT_TRUE(!b.leaf.written);
  parameters.set_trainable(b, true);
  EXPECT_TRUE(b.trainable());
  pass(), pass();
  EXPECT_EQ(item(a.leaf.grad), 6) << "two backward passes must be added to the first gradient";
  EXPECT_EQ(item(b.leaf.grad), 6) << "twice 3: the gradient from before zero_grad() must not remain";
}

TEST_F(L03_Parameters, DropGradGivesTheMemoryBackAndTheNextPassIsAsTheFirst) {
  Parameter &a = add_one("a"), &b = add_one("b");
  const auto pass = [&] { Tape().backward(add(scale(a.value, 2), scale(b.value, 3))); };
  parameters.drop_grad();
  EXPECT_EQ(meter.now()[Kind::Gradient], 0);
  pass();
  EXPECT_EQ(meter.now()[Kind::Gradient], 8);
  parameters.set_trainable(b, false);
  parameters.drop_grad();
  EXPECT_EQ(meter.now()[Kind::Gradient], 0) << "gradients of frozen parameters must be freed, too";
  for (const Parameter* p : {&a, &b}) {
    EXPECT_TRUE(!p->leaf.written) << p->name;
    EXPECT_FALSE(p->leaf.grad.defined()) << p->name;
  }
  EXPECT_EQ(item(a.value), 1) << "drop_grad() must not change values";
  parameters.set_trainable(b, true);
  pass(), pass();
  EXPECT_EQ(meter.now()[Kind::Gradient], 8);
  EXPECT_EQ(item(a.leaf.grad), 4);
  EXPECT_EQ(item(b.leaf.grad), 6);
}

TEST_F(L03_Parameters, RoundingTheMasterCopyWritesTheValueAlone) {
  Parameter &with = add_one("with", mixed(DType::BF16)), &without = add_one("without");
  copy_from_host(with.master, {1 + 0x1p-8 + 0x1p-20});  // just above a tie
  const uint32_t version = without.value.storage().version;
  with.round_master(), without.round_master();
  EXPECT_EQ(item(with.value), 1 + 0x1p-7);
  EXPECT_EQ(item(with.master), 1 + 0x1p-8 + 0x1p-20);
  EXPECT_EQ(item(without.value), 1);
  EXPECT_EQ(without.value.storage().version, version);
}

struct L03_OptimizerRefusals : L03_Parameters {};
TEST_F(L03_OptimizerRefusals, ARefusedStepWritesToNothing) {
  Parameter &a = add_one("a", mixed(DType::BF16)), &b = add_one("b");
  AdamW optimizer(parameters);
  Tape tape;
  const Tensor square = linear(a.value.reshape({1, 1}), a.value.reshape({1, 1}));  // saves a
  std::vector<const Storage*> written{&a.value.storage(), &a.master.storage(), &b.value.storage()};
  for (const Optimizer::State& s : optimizer.states)
    for (const Tensor& t : s.tensors) written.push_back(&t.storage());
  std::vector<uint32_t> before;
  for (const Storage* s : written) before.push_back(s->version);
  for (Parameter* missing : {&a, &b}) {
    for (Parameter* p : {&a, &b}) p->leaf.grad = b.value, p->leaf.written = p != missing;
    expect_refused("optimizer: parameter '" + missing->name + "' has no gradient; call backward()",
                   [&] { optimizer.step(0.5); });
    for (size_t i = 0; i < written.size(); ++i)
      EXPECT_EQ(written[i]->version, before[i]) << written[i]->name();
  }
  EXPECT_EQ(optimizer.scalars().learning_rate, 0);
  EXPECT_EQ(optimizer.scalars().updates, 0);
  EXPECT_EQ(context.device.scalars().step, 1);
  a.leaf.grad = {};
  tape.backward(square);  // the refused steps changed nothing
  EXPECT_EQ(item(a.leaf.grad), 2);
}

TEST_F(L03_OptimizerRefusals, WithoutATrainableParameterOrAGradient) {
  Parameter& p = add_one("p");
  Sgd trains(parameters);
  expect_refused("clip_grad_norm: no parameter has a gradient; call backward() first",
                 [&] { trains.clip_grad_norm(1); });
  parameters.set_trainable(p, false);
  p.leaf.grad = p.value, p.leaf.written = true;
  expect_refused("no parameter has a gradient", [&] { trains.clip_grad_norm(1); });
  Sgd optimizer(parameters);
  EXPECT_TRUE(optimizer.states.empty());
  expect_refused("optimizer: no parameter is trainable", [&] { optimizer.step(0.1); });
  EXPECT_EQ(context.device.scalars().step, 1);
  EXPECT_EQ(optimizer.scalars().clip_factor, 1);
}

TEST_F(L03_Parameters, TheThreeLayersAreWhatTheirParametersSay) {
  const Linear l(parameters, "l", 2, 3);
  EXPECT_EQ(&l.weight, &parameters.find("l.weight"));
  EXPECT_EQ(l.bias, &parameters.find("l.bias"));
  EXPECT_EQ(l.weight.value.shape(), (Shape{3, 2}));
  EXPECT_EQ(l.bias->value.shape(), Shape{3});
  EXPECT_EQ(l.weight.precision, Precision());
  copy_from_host(l.weight.value, {1, 2, 3, 4, 5, 6}), copy_from_host(l.bias->value, {10, 20, 30});
  const auto tensor = [&](const std::vector<double>& v, const Shape& s) {
    return from_host(context.device, v, s, DType::F32, Kind::Data, "x");
  };
  EXPECT_EQ(to_host<double>(l(tensor({1, -1}, {1, 2}))), (std::vector<double>{9, 19, 29}));

  const Norm n(parameters, "n", 2, {}, 3);
  EXPECT_EQ(n.eps, 3);
  EXPECT_EQ(&n.gamma, &parameters.find("n.weight"));
  EXPECT_EQ(n.beta, &parameters.find("n.bias"));
  copy_from_host(n.gamma.value, {2, 4}), copy_from_host(n.beta->value, {1, 5});
  const std::vector<double> y = to_host<double>(n(tensor({-1, 1}, {1, 2})));  // sqrt(1 + 3) = 2
  EXPECT_NEAR(y[0], 0, 1e-6);
  EXPECT_NEAR(y[1], 7, 1e-6);

  const Embedding e(parameters, "e", 7, 2, mixed(DType::BF16));
  EXPECT_EQ(&e.table, &parameters.find("e.weight"));
  EXPECT_EQ(e.table.value.shape(), (Shape{7, 2}));
  EXPECT_EQ(e.table.precision, mixed(DType::BF16));
  EXPECT_EQ(parameters.size(), 5u);
  const Linear half(parameters, "h", 2, 3, uniform(DType::F16));
  EXPECT_EQ(half.weight.value.dtype(), DType::F16);
  EXPECT_EQ(half.bias->value.dtype(), DType::F16);

  const Linear bare(parameters, "bare", 2, 1, {}, Bias::No);
  EXPECT_EQ(parameters.size(), 8u) << "Bias::No adds only a weight";
  copy_from_host(bare.weight.value, {3, 4});
  EXPECT_EQ(to_host<double>(bare(tensor({1, -1}, {1, 2}))), std::vector<double>{-1});
}

}  // namespace
}  // namespace gradus
