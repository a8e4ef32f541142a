// The model as a whole: parameter counts, memory to the byte, training that repeats and resumes bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "src/data/dummy.h"
#include "src/io/checkpoint.h"
#include "src/nn/transformer.h"
#include "src/tensor/context.h"

namespace gradus {
namespace {

const TransformerConfig kTiny{.vocab = 31, .context = 12, .layers = 2, .heads = 3, .channels = 24};

TEST(L03_Transformer, ParameterCountsOfTheFourGpt2Sizes) {
  struct Size {
    const char* name;
    int64_t count;
  };
  // Published: gpt2 and gpt2-medium (reference-numbers b.4); the other two by the same formula.
  for (const Size& size : {Size{"gpt2", 124'439'808},
                           {"gpt2-medium", 354'823'168},
                           {"gpt2-large", 774'030'080},
                           {"gpt2-xl", 1'557'611'200}}) {
    const TransformerConfig config = transformer_config(size.name);
    EXPECT_EQ(config.parameter_count(), size.count) << size.name;
    Context context;  // the weights are allocated, but not written: no page of them is touched
    EXPECT_EQ(Transformer(config).parameters.numel(), size.count) << size.name;
  }
}

TEST(L03_Transformer,
     FlopsPerTokenAsPublished) {  // nanoGPT's sizing notebook: PaLM's formula for 124M, T = 1024
  TransformerConfig gpt2 = transformer_config("gpt2");
  gpt2.vocab = 50304;
  EXPECT_EQ(6 * gpt2.parameter_count() + 12 * gpt2.layers * gpt2.channels * gpt2.context, 860'101'632);
  EXPECT_EQ(gpt2.flops_per_token(), 860'101'632);
}

TEST(L03_Transformer, InitializationIsGpt2s) {
  Context context;
  Transformer model({.vocab = 64, .context = 32, .layers = 3, .heads = 4, .channels = 64});
  model.initialize(7);
  for (Parameter& p : model.parameters) {
    const std::vector<double> w = to_host<double>(p.value);
    double sum = 0, squares = 0;
    for (const double x : w) sum += x, squares += x * x;
    const double mean = sum / double(w.size()), rms = std::sqrt(squares / double(w.size()));
    if (!p.decay) {
      const bool gain = p.name.find("ln_") != std::string::npos && p.name.ends_with("weight");
      EXPECT_EQ(mean, gain ? 1.0 : 0.0) << p.name;
      EXPECT_EQ(rms, gain ? 1.0 : 0.0) << p.name;
      continue;
    }
    const double std = p.name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(6.0) : 0.02;
    const double deviations = 5 / std::sqrt(double(w.size()));  // five standard errors
    EXPECT_NEAR(mean, 0, std * deviations) << p.name;
    EXPECT_NEAR(rms, std, std * deviations / std::sqrt(2.0)) << p.name;
  }
}

TEST(L03_Transformer, ImpossibleConfigurationsAreRefused) {
  Context context;
  for (const TransformerConfig& bad :
       {TransformerConfig{.heads = 3, .channels = 128}, TransformerConfig{.vocab = 0},
        TransformerConfig{.layers = -1}, TransformerConfig{.heads = 0}, TransformerConfig{.dropout = 1.0},
        TransformerConfig{.channels = 0}})
    EXPECT_THROW(Transformer{bad}, Error);
  EXPECT_THROW(transformer_config("gpt5"), Error);
}

double train_step(Transformer& model, AdamW& optimizer, int64_t step) {
  const DummyBatch batch = dummy_batch(model.config, 4, model.config.context, uint64_t(step));
  Tape tape;
  const Tensor loss = batch.loss(model);
  const double value = item(loss);
  model.parameters.zero_grad();
  tape.backward(loss);
  optimizer.clip_grad_norm(1.0);
  optimizer.step(1e-2);
  return value;
}

std::vector<double> train(int64_t steps, const TransformerConfig& config) {
  Context context("cpu", 3);
  Transformer model(config);
  model.initialize(3);
  AdamW optimizer(model.parameters, {.weight_decay = 0.1f});
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) losses.push_back(train_step(model, optimizer, step));
  return losses;
}

// Scores and samples do not depend on what training drops out, with either attention.
TEST(L03_Transformer, EvaluationDropsNothing) {
  for (const bool flash : {false, true}) {
    Context context("cpu", 3);
    TransformerConfig config = kTiny, with_dropout = kTiny;
    config.attention = with_dropout.attention = flash ? attention_flash : attention_plain;
    with_dropout.dropout = 0.5;
    Transformer plain(config), dropping(with_dropout);
    plain.initialize(1), dropping.initialize(1);
    const Tensor ids = dummy_batch(kTiny, 2, kTiny.context).ids;
    const std::vector<double> expected = to_host<double>(plain.logits(ids));
    {
      const Evaluation evaluation;
      EXPECT_EQ(to_host<double>(dropping.logits(ids)), expected);
      const Evaluation within;
      EXPECT_EQ(to_host<double>(dropping.logits(ids)), expected);
    }
    EXPECT_NE(to_host<double>(dropping.logits(ids)), expected) << "training goes on as before";
  }
}

TEST(L03_Training, TheSameSeedGivesTheSameLossesToTheBit) {
  TransformerConfig config = kTiny;
  const std::vector<double> once = train(6, config);
  EXPECT_EQ(once, train(6, config));
  config.dropout = 0.2;
  const std::vector<double> with_dropout = train(6, config);
  EXPECT_EQ(with_dropout, train(6, config));
  EXPECT_NE(once, with_dropout);
}

TEST(L03_Training, ALoadedRunGoesOnAsIfNeverStopped) {
  const std::string path = ::testing::TempDir() + "resume.safetensors";
  TransformerConfig config = kTiny;
  config.dropout = 0.1;
  const std::vector<double> whole = train(6, config);
  {
    Context context("cpu", 3);
    Transformer model(config);
    model.initialize(3);
    AdamW optimizer(model.parameters, {.weight_decay = 0.1f});
    for (int64_t step = 0; step < 3; ++step) EXPECT_EQ(train_step(model, optimizer, step), whole[step]);
    save_training(path, model.parameters, optimizer, {{"seed", "3"}});
  }
  Context context("cpu", 3);
  Transformer model(config);  // not initialized: everything comes from the file
  AdamW optimizer(model.parameters, {.weight_decay = 0.1f});
  EXPECT_EQ(load_training(path, model.parameters, optimizer).at("seed"), "3");
  EXPECT_EQ(optimizer.scalars().updates, 3);
  for (int64_t step = 3; step < 6; ++step)
    EXPECT_EQ(train_step(model, optimizer, step), whole[step]) << "step " << step;
  std::filesystem::remove(path);
}

TEST(L03_Training, WeightsOfAnotherModelAreRefusedAndChangeNothing) {
  const std::string path = ::testing::TempDir() + "weights.safetensors";
  Context context("cpu", 3);
  Transformer model(kTiny);
  model.initialize(3);
  save_weights(path, model.parameters);
  TransformerConfig wider = kTiny;
  wider.channels = 27;
  Transformer other(wider);
  other.initialize(4);
  const std::vector<double> before = to_host<double>(other.parameters.find("wte.weight").value);
  EXPECT_THROW(load_weights(path, other.parameters), Error);
  EXPECT_EQ(to_host<double>(other.parameters.find("wte.weight").value), before);
  AdamW optimizer(model.parameters);
  EXPECT_THROW(load_training(path, model.parameters, optimizer), Error)
      << "a file of weights is no training state";
  Transformer same(kTiny);
  load_weights(path, same.parameters);
  EXPECT_EQ(to_host<double>(same.parameters.find("h.1.mlp.c_fc.weight").value),
            to_host<double>(model.parameters.find("h.1.mlp.c_fc.weight").value));
  std::filesystem::remove(path);
}

TEST(L03_Memory, FourPlusFourPlusEightBytesAParameter) {
  Context context("cpu", 3);
  const Meter& meter = context.device.meter();
  Transformer model(kTiny);
  model.initialize(3);
  const int64_t N = model.parameters.numel();
  EXPECT_EQ(meter.now()[Kind::Weight], 4 * N);
  AdamW optimizer(model.parameters);
  EXPECT_EQ(meter.now()[Kind::Optimizer], 8 * N);
  int64_t requests = 0;
  for (int64_t step = 0; step < 5; ++step) {
    train_step(model, optimizer, step);
    if (step == 1) requests = meter.device_requests();
    EXPECT_EQ(meter.now()[Kind::Gradient], 4 * N);
    EXPECT_EQ(meter.now()[Kind::Activation], 0) << "activations outlived their step";
  }
  EXPECT_EQ(meter.device_requests(), requests) << "the device was asked for memory after step 2";
  int64_t sum = meter.at_peak().rounding;
  for (const int64_t bytes : meter.at_peak().by_kind) sum += bytes;
  EXPECT_EQ(sum, meter.at_peak().allocated());
  EXPECT_GT(meter.at_peak()[Kind::Activation], 0);
}

// Saved for backward, per layer and token: x twice (layer norms), qkv 3C, y C, residual C... as a formula of
// shapes.
void expect_saved_bytes(const TransformerConfig& config, int64_t of_attention) {
  Context context("cpu", 3);
  Transformer model(config);
  model.initialize(3);
  const int64_t B = 4, T = kTiny.context, C = kTiny.channels, H = kTiny.heads, L = kTiny.layers,
                V = kTiny.vocab;
  const DummyBatch batch = dummy_batch(kTiny, B, T);
  Tape tape;
  const Tensor loss = batch.loss(model);
  // ln_1: x C, statistics 2; its output C (c_attn's input); qkv 3C; what attention saves of each head; its
  // output C; ln_2: residual C, statistics 2; its output C; c_fc's output 4C (gelu); gelu's output 4C.
  const int64_t layer = (C + 2) + C + 3 * C + H * of_attention + C + (C + 2) + C + 4 * C + 4 * C;
  const int64_t end = (C + 2) + C + V + 1;  // ln_f's input, statistics and output; logits, log-sum-exp
  EXPECT_EQ(tape.saved_bytes(), 4 * B * T * (L * layer + end));
}
TEST(L03_Memory, SavedActivationsAreTheFormula) {
  TransformerConfig config = kTiny;
  expect_saved_bytes(config, config.context);  // a probability for each key
  config.attention = attention_flash;
  expect_saved_bytes(config, 1);  // a log-sum-exp
}

TEST(L03_Optim, FrozenParametersDoNotChangeAndHaveNoState) {
  Context context("cpu", 3);
  Transformer model(kTiny);
  model.initialize(3);
  Parameter& frozen = model.parameters.find("wpe.weight");
  model.parameters.set_trainable(frozen, false);
  const std::vector<double> before = to_host<double>(frozen.value);
  AdamW optimizer(model.parameters);
  EXPECT_EQ(context.device.meter().now()[Kind::Optimizer],
            8 * (model.parameters.numel() - frozen.value.numel()));
  train_step(model, optimizer, 0);
  EXPECT_EQ(to_host<double>(frozen.value), before);
  EXPECT_FALSE(frozen.leaf.grad.defined());
}

TEST(L03_Optim, StepWithoutGradientsIsAnErrorThatExplains) {
  Context context;
  Transformer model(kTiny);
  model.initialize(3);
  AdamW optimizer(model.parameters);
  EXPECT_THROW(optimizer.step(1e-3), Error);
}

TEST(L03_Optim, WarmupThenCosine) {
  EXPECT_DOUBLE_EQ(warmup_cosine(0, 10, 100, 1.0, 0.1), 0.1);
  EXPECT_DOUBLE_EQ(warmup_cosine(9, 10, 100, 1.0, 0.1), 1.0);
  EXPECT_DOUBLE_EQ(warmup_cosine(10, 10, 100, 1.0, 0.1), 1.0);
  EXPECT_NEAR(warmup_cosine(55, 10, 100, 1.0, 0.1), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(warmup_cosine(100, 10, 100, 1.0, 0.1), 0.1);
  EXPECT_DOUBLE_EQ(warmup_cosine(500, 0, 100, 1.0, 0.1), 0.1);
}

TEST(L03_Memory, ABudgetTooSmallIsASentenceAndTheProgramGoesOn) {
  Context context("cpu", 3, int64_t(24) << 20);
  try {
    Transformer big({.vocab = 5000, .context = 64, .layers = 2, .heads = 4, .channels = 512});
    FAIL() << "a model of 23 MiB of weights fit into a budget of 24 MiB with its 20 MiB segments";
  } catch (const OutOfMemory& e) {
    EXPECT_NE(std::string(e.what()).find("wte.weight"), std::string::npos) << e.what();
  }
  Transformer small(kTiny);
  small.initialize(1);
  EXPECT_EQ(context.device.meter().now()[Kind::Weight], 4 * small.parameters.numel());
}

}  // namespace
}  // namespace gradus
