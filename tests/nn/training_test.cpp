// What training promises beside its numbers: where there is dropout, what decays, where states begin, how
// long clipping lasts.
#include <gtest/gtest.h>

#include <cmath>

#include "src/data/dummy.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"

namespace gradus {
namespace {

const TransformerConfig kTiny{.vocab = 31, .context = 12, .layers = 2, .heads = 3, .channels = 24};

void backward(Transformer& model) {
  Tape tape;
  const Tensor loss = dummy_batch(model.config, 2, model.config.context).loss(model);
  model.parameters.zero_grad();
  tape.backward(loss);
}

TEST(L03_Training, DropoutIsWhereGpt2HasIt) {
  RecordProperty("exercise", "03.1");
  Context context("cpu", 3);
  TransformerConfig config = kTiny;
  config.dropout = 0.1;
  Transformer model(config);
  model.initialize(1);
  Tape tape;
  model.logits(dummy_batch(config, 2, config.context).ids);
  std::vector<std::string> before;  // the ops whose output is dropped out
  for (size_t i = 1; i < tape.nodes().size(); ++i)
    if (tape.nodes()[i].op == std::string("dropout")) before.push_back(tape.nodes()[i - 1].op);
  EXPECT_EQ(before, (std::vector<std::string>{"add_positions", "linear", "linear", "linear", "linear"}))
      << "the embeddings, and in each block what attention and the MLP add";
}

TEST(L03_Training, EachDropoutOfAPassHasAMaskOfItsOwn) {
  Context context("cpu", 3);
  const Tensor x =
      from_host(context.device, std::vector<double>(64, 1), {1, 64}, DType::F32, Kind::Data, "x");
  EXPECT_NE(to_host<double>(dropout(x, 0.5)), to_host<double>(dropout(x, 0.5)));
}

TEST(L03_Training, PositionsThatAreNotUsedGetAGradientOfZero) {
  Context context("cpu", 3);
  Parameters parameters;
  Parameter& table = parameters.add("wpe", {100, 10}, {});
  const Tensor x =
      from_host(context.device, std::vector<double>(30, 1), {1, 3, 10}, DType::F32, Kind::Data, "x");
  Tape tape;
  const Tensor y = add_positions(x, table.value);
  {
    const Tensor old =
        from_host(context.device, std::vector<double>(1000, NAN), {1000}, DType::F32, Kind::Data, "old");
  }
  tape.backward(y, x);
  std::vector<double> expected(1000, 0.0);
  std::fill_n(expected.begin(), 30, 1.0);
  EXPECT_EQ(to_host<double>(table.leaf.grad), expected);
}

std::vector<double> after_a_step(const char* parameter, float weight_decay) {
  Context context("cpu", 3);
  Transformer model(kTiny);
  model.initialize(1);
  AdamW optimizer(model.parameters, {.weight_decay = weight_decay});
  backward(model);
  optimizer.step(0.1);
  return to_host<double>(model.parameters.find(parameter).value);
}
TEST(L03_Optim, MatricesDecayBiasesAndNormsDoNot) {
  for (const char* kept : {"h.0.ln_1.weight", "h.1.ln_2.bias", "h.0.attn.c_attn.bias"})
    EXPECT_EQ(after_a_step(kept, 0.5f), after_a_step(kept, 0)) << kept;
  for (const char* decays : {"wte.weight", "h.1.mlp.c_fc.weight"})
    EXPECT_NE(after_a_step(decays, 0.5f), after_a_step(decays, 0)) << decays;
}

TEST(L03_Optim, StatesBeginAtZeroWhateverLiesInMemory) {
  Context context("cpu", 3);
  Parameters parameters;
  parameters.add("w", {1000}, {});
  {
    const std::vector<double> old(1000, NAN);
    const Tensor a = from_host(context.device, old, {1000}, DType::F32, Kind::Data, "a"),
                 b = from_host(context.device, old, {1000}, DType::F32, Kind::Data, "b");
  }
  AdamW optimizer(parameters);
  for (const Tensor& state : optimizer.states[0].tensors)
    EXPECT_EQ(to_host<double>(state), std::vector<double>(1000, 0.0)) << state.storage().name();
}

TEST(L03_Optim, ClippingLastsForOneUpdate) {
  Context context("cpu", 3);
  Parameters parameters;
  Parameter& w = parameters.add("w", {2}, {});
  copy_from_host(w.value, {0, 0});
  Sgd optimizer(parameters);
  Tape tape;
  tape.backward(scale(w.value, 1),
                from_host(context.device, std::vector<double>{30, 40}, {2}, DType::F32, Kind::Data, "dy"));
  optimizer.clip_grad_norm(5);  // of 50
  optimizer.step(1);
  EXPECT_NEAR(to_host<double>(w.value)[0], -3, 1e-5);
  optimizer.step(1);
  EXPECT_NEAR(to_host<double>(w.value)[0], -33, 1e-4) << "the second update was not to be clipped";
}

}  // namespace
}  // namespace gradus
