// checkpoint(): bitwise equal gradients, the bytes of the saved tensors, and no more work than needed.
#include "src/nn/transformer.h"
#include "src/ops/ops.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

struct L08_Checkpoint : TapeTest {
  Tensor input() {
    Tensor x = tensor(std::vector<double>(40, 0.5), {4, 10});
    attach(x, leaf, "x");
    return x;
  }
};

// gelu saves its input, dropout nothing; the last of the saved tensors is the input of the third gelu.
Tensor three_steps(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < 3; ++i) y = dropout(gelu(y), 0.25);
  return y;
}

struct Outcome {
  std::vector<double> y, dx;
  int64_t saved, calls;  // bytes that the tape holds after the forward pass; kernels in the backward pass
};
Outcome outcome_of(L08_Checkpoint& test, const std::function<Tensor(const Tensor&)>& f) {
  const Tensor x = test.input();
  Tape tape;
  const Tensor y = f(x);
  const int64_t saved = tape.saved_bytes();
  const std::vector<double> values = to_host<double>(y);
  test.context.device.meter().reset_totals();
  test.leaf.zero();
  tape.backward(y, x.detach());
  return {values, to_host<double>(test.leaf.grad), saved,
          test.context.device.meter().totals(OpClass::Elementwise).calls};
}

TEST_F(L08_Checkpoint, GradientsAreBitEqualAndOnlyInputsAreKept) {
  const Outcome all = outcome_of(*this, [](const Tensor& x) { return three_steps(three_steps(x)); });
  EXPECT_EQ(all.saved, 5 * 160) << "x is of kind weight";
  EXPECT_EQ(all.calls, 12);
  const Outcome two =
      outcome_of(*this, [](const Tensor& x) { return checkpoint(checkpoint(x, three_steps), three_steps); });
  EXPECT_EQ(two.saved, 160);
  EXPECT_EQ(two.calls, 12 + 2 * 4) << "the last gelu and dropout of a segment need no recomputation";
  const Outcome nested = outcome_of(*this, [](const Tensor& x) {
    return checkpoint(x, [](const Tensor& from) { return three_steps(checkpoint(from, three_steps)); });
  });
  EXPECT_EQ(nested.saved, 0);
  EXPECT_EQ(nested.calls, 12 + (6 + 4) + 4);
  for (const Outcome* o : {&two, &nested}) {
    EXPECT_EQ(o->y, all.y);
    EXPECT_EQ(o->dx, all.dx);
  }
}

// Also if the next micro-batch has begun in the meantime.
TEST_F(L08_Checkpoint, RecomputationDrawsTheMasksOfTheForwardPass) {
  std::vector<std::vector<double>> gradients;
  for (const bool again : {false, true}) {
    const Tensor x = input();
    Tape tape;
    context.first_sample = 2;
    const Tensor y = again ? checkpoint(x, three_steps) : three_steps(x);
    context.first_sample = 6;
    leaf.zero();
    tape.backward(y, x.detach());
    EXPECT_EQ(context.first_sample, 6);
    gradients.push_back(to_host<double>(leaf.grad));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST_F(L08_Checkpoint, WeightsGetGradientsWhereTheInputWantsNone) {
  Tensor w = tensor({1, 2, 3, 4}, {2, 2});
  attach(w, leaf, "w");
  const Tensor x = tensor({5, 6}, {1, 2});
  std::vector<std::vector<double>> gradients;
  for (const bool again : {false, true}) {
    const auto f = [&](const Tensor& from) { return linear(gelu(linear(from, w)), w); };
    Tape tape;
    const Tensor y = again ? checkpoint(x, f) : f(x);
    leaf.zero();
    int finals = 0;
    leaf.on_final = [&](Leaf&) { ++finals; };
    tape.backward(y, tensor({1, -1}, {1, 2}));
    EXPECT_EQ(finals, 1);
    gradients.push_back(to_host<double>(leaf.grad));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST_F(L08_Checkpoint, WithoutATapeOrWithoutGradientsItIsTheFunction) {
  const Tensor x = tensor({1, 2}, {1, 2});
  EXPECT_EQ(to_host<double>(checkpoint(x, [](const Tensor& t) { return scale(t, 3); })),
            (std::vector<double>{3, 6}));
  const Tape tape;
  checkpoint(x, [](const Tensor& t) { return scale(t, 3); });
  EXPECT_TRUE(tape.nodes().empty());
}

// The input of a segment is an activation, even if only the segment saves it.
TEST_F(L08_Checkpoint, AnInputThatNoOpKeepsCounts) {
  const Tensor x = input();
  Tape tape;
  const Tensor y = checkpoint(dropout(x, 0.5), [](const Tensor& from) { return gelu(dropout(from, 0.5)); });
  EXPECT_EQ(tape.saved_bytes(), 160);
  tape.backward(y, x.detach());
}

// Even if no op in the segment saves the input, as here, where a dropout is the first op.
TEST_F(L08_Checkpoint, AnInputThatWasWrittenToIsFoundOut) {
  const Tensor x = input();
  Tape tape;
  const Tensor h = gelu(x);
  const Tensor y = checkpoint(h, [](const Tensor& from) { return gelu(gelu(dropout(from, 0.5))); });
  Tensor(h).add();
  expect_refused("'gelu' was written to", [&] { tape.backward(y, x.detach()); });
}

// Losses of twenty steps of a model, each of two micro-batches, and its last gradients and weights.
std::vector<double> trained(const char* device, TransformerConfig config,
                            const std::function<void(Transformer&)>& keep) {
  Context context(device, 7);
  Transformer model(config);
  model.initialize(1);
  keep(model);
  AdamW optimizer(model.parameters);
  std::vector<double> all;
  for (int step = 0; step < 20; ++step) {
    model.parameters.zero_grad();
    for (int micro = 0; micro < 2; ++micro) {
      context.first_sample = 2 * micro;
      const DummyBatch batch = dummy_batch(config, 2, config.context, uint64_t(2 * step + micro + 1));
      Tape tape;
      const Tensor loss = batch.loss(model);
      all.push_back(item(loss));
      tape.backward(loss);
    }
    optimizer.step(1e-3);
  }
  for (const Parameter& p : model.parameters)
    for (const Tensor& t : {p.leaf.grad, p.value})
      for (const double x : to_host<double>(t)) all.push_back(x);
  return all;
}

TEST(L08_Policies, AllGiveTheSameLossesAndGradientsToTheBit) {
  RecordProperty("exercise", "08.6");
  for (const char* family : {"gpt2", "bert-base", "polyglot-ko-1.3b"})
    for (const char* recipe : {"fp32", "mixed", "half"}) {
      TransformerConfig config = transformer_config(family);
      config.vocab = 31, config.context = 8, config.layers = 4, config.heads = 2, config.channels = 16;
      config.dropout = 0.1, config.precision = precision_recipe(recipe);
      if (config.rotary > 0) config.rotary = 4;
      if (config.output_head == OutputHead::Pooled) config.labels = 2;
      const std::vector<double> all = trained("cpu", config, [](Transformer&) {});
      for (int loss = 0; loss < 40; ++loss)
        ASSERT_TRUE(std::isfinite(all[size_t(loss)])) << family << " " << recipe << " " << loss;
      const std::vector<std::vector<BlockSegment>> cuts{
          {{4, Keep::Input}},
          {{1, Keep::Input}, {1, Keep::Input}, {1, Keep::Input}, {1, Keep::Input}},
          {{4, Keep::LessAttention}},
          {{1, Keep::All}, {2, Keep::Input}, {1, Keep::LessAttention}}};
      for (const auto& cut : cuts)
        EXPECT_EQ(trained("cpu", config, [&](Transformer& m) { m.segments = cut; }), all)
            << family << " " << recipe << " " << &cut - cuts.data();
      EXPECT_EQ(trained("cpu", config, [](Transformer& m) { m.from_the_start = true; }), all) << family;
    }
}

TEST(L08_Policies, SegmentsMustCoverTheBlocks) {
  const Context context("cpu");
  Transformer model({.vocab = 31, .context = 8, .layers = 4, .heads = 2, .channels = 16});
  model.segments = {{3, Keep::Input}};
  expect_refused("the segments have 3 blocks, the model has 4",
                 [&] { model.logits(dummy_batch(model.config, 1, 8).ids); });
}

}  // namespace
}  // namespace gradus
