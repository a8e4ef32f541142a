// Recomputation draws the random numbers of the forward pass, whatever happens in between.
#include "src/ops/ops.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

struct L08_Recompute : TapeTest {
  Tensor input() {
    std::vector<double> values(128);
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(double(i));
    Tensor x = tensor(values, {4, 32});
    attach(x, leaf, "x");
    return x;
  }
  // The gradient of x, after a forward and a backward pass in the scopes that the two functions open.
  template <class Opens>
  std::vector<double> gradient(const std::function<Tensor(const Tensor&)>& f, const Opens& forward,
                               const Opens& backward) {
    const Tensor x = input();
    leaf.zero();
    Tape tape;
    Tensor y;
    {
      const auto open = forward();
      tape.make_current();
      y = f(x);
    }
    const auto open = backward();
    tape.backward(y, x.detach());
    return to_host<double>(leaf.grad);
  }
};

Tensor random_steps(const Tensor& x) { return gelu(dropout(gelu(dropout(gelu(x), 0.25)), 0.25)); }
Tensor checkpointed(const Tensor& x) { return checkpoint(x, random_steps); }

TEST_F(L08_Recompute, AnEvaluationAroundTheForwardPassOrTheBackwardPassChangesNothing) {
  using Opens = std::function<std::unique_ptr<Evaluation>()>;
  const Opens evaluation = [] { return std::make_unique<Evaluation>(); },
              nothing = [] { return std::unique_ptr<Evaluation>(); };
  const auto trained = gradient(random_steps, nothing, nothing);
  const auto evaluated = gradient(random_steps, evaluation, nothing);
  EXPECT_NE(trained, evaluated) << "an Evaluation must change the result, because dropout drops nothing";
  EXPECT_EQ(gradient(checkpointed, nothing, nothing), trained);
  EXPECT_EQ(gradient(checkpointed, evaluation, nothing), evaluated);
  EXPECT_EQ(gradient(checkpointed, nothing, evaluation), trained);
  EXPECT_EQ(gradient(checkpointed, evaluation, evaluation), evaluated);
}

// Ops that save their output, which the next op reads.
TEST_F(L08_Recompute, TheLastOpMaySaveItsOutput) {
  struct Last {
    const char* name;
    std::function<Tensor(const Tensor&)> f;
  };
  const auto flash = [](const Tensor& x) {
    return attention_flash(x.reshape({1, 4, 24}), 2, Mask::Causal, 0.2);
  };
  for (const Last& last : std::vector<Last>{
           {"tanh", [](const Tensor& x) { return tanh(gelu(x)); }},
           {"softmax", [](const Tensor& x) { return softmax(gelu(x)); }},
           {"an inner value",
            [](const Tensor& x) {
              const Tensor y = tanh(x);
              gelu(y);
              return y;
            }},
       }) {
    const auto dx = [&](bool again) {
      const Tensor x = input();
      leaf.zero();
      Tape tape;
      const Tensor y = again ? checkpoint(x, last.f) : last.f(x), z = gelu(y);
      tape.backward(z, x.detach());
      return to_host<double>(leaf.grad);
    };
    EXPECT_EQ(dx(true), dx(false)) << last.name;
  }
  std::vector<double> qkv(96);
  for (size_t i = 0; i < qkv.size(); ++i) qkv[i] = std::cos(double(i));
  std::vector<double> gradients[2];
  for (const bool again : {false, true}) {
    Leaf of_qkv;
    Tensor x = tensor(qkv, {1, 4, 24});
    attach(x, of_qkv, "qkv");
    Tape tape;
    const Tensor y = gelu(again ? checkpoint(x, flash) : flash(x));
    tape.backward(y, y.detach());
    gradients[again] = to_host<double>(of_qkv.grad);
  }
  EXPECT_EQ(gradients[1], gradients[0]) << "flash attention";
}

TEST_F(L08_Recompute, WhatThrowsTheSecondTimeLeavesTheContextAsItWas) {
  bool throws = false;
  const Tensor x = input();
  context.first_sample = 7, context.seed = 11;
  Tape tape;
  const Tensor y = gelu(checkpoint(x, [&](const Tensor& from) {
    const Tensor inner = gelu(from);
    check(!throws, "the second run fails");
    return gelu(gelu(inner));
  }));
  throws = true;
  context.first_sample = 3, context.seed = 12;
  expect_refused("the second run fails", [&] { tape.backward(y, x.detach()); });
  EXPECT_EQ(context.first_sample, 3);
  EXPECT_EQ(context.seed, 12u);
  EXPECT_EQ(leaf.uses, 1) << "the use lasts until the tape ends";
}

// Its ops are compared, because gradients would be wrong without an error.
TEST_F(L08_Recompute, AFunctionThatDependsOnSomethingElseIsFoundOut) {
  for (const bool fewer : {true, false}) {
    int64_t runs = 0;
    const Tensor x = input();
    Tape tape;
    const Tensor y = gelu(checkpoint(x, [&](const Tensor& from) {
      if (runs++ == 0) return gelu(gelu(gelu(from)));
      return fewer ? gelu(from) : gelu(tanh(gelu(from)));
    }));
    expect_refused(fewer ? "made 1 ops when it was recomputed, fewer than before"
                         : "op 1 of the function was gelu, but is tanh when it is recomputed",
                   [&] { tape.backward(y, x.detach()); });
  }
}

}  // namespace
}  // namespace gradus
