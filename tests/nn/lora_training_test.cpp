// Training adapters: the bytes, that nothing else changes, with checkpointing, in 16 bits, and with weights
// in 4 bits.
#include <map>

#include "src/optim/optimizer.h"
#include "tests/nn/lora_testing.h"

namespace gradus {
namespace {

using Values = std::map<std::string, std::vector<double>>;
Values kept(const Transformer& model) {
  Values values;
  for (const Parameter& p : model.parameters)
    if (!p.kept().storage().dropped()) values[p.name] = to_host<double>(p.kept());
  return values;
}
bool of_adapter(const std::string& name) { return name.find(".lora_") != std::string::npos; }

struct L12_LoraTraining : LoraTest {
  Values gradients(Transformer& model) {
    model.parameters.drop_grad();
    Tape tape;
    tape.backward(batch.loss(model));
    Values g;
    for (const Parameter& p : model.parameters)
      if (p.leaf.grad.defined()) g[p.name] = to_host<double>(p.leaf.grad);
    return g;
  }
  double loss(const Transformer& model) {
    const Evaluation evaluation;
    return item(batch.loss(model));
  }
  // Makes ten steps. They must change all adapters and nothing else, and lower the loss; only adapters have
  // states.
  void expect_ten_steps_of_adapters(Transformer& model) {
    const Values before = kept(model);
    const double first = loss(model);
    AdamW optimizer(model.parameters);
    for (int step = 0; step < 10; ++step) {
      model.parameters.zero_grad();
      Tape().backward(batch.loss(model));
      optimizer.step(0.01);
    }
    for (const auto& [name, values] : kept(model))
      EXPECT_EQ(values != before.at(name), of_adapter(name)) << name;
    EXPECT_LT(loss(model), 0.98 * first);
    EXPECT_EQ(context.device.meter().now()[Kind::Optimizer], 8 * model.parameters.numel_trainable());
  }
};
ON_DEVICES_AND_FAMILIES(L12_LoraTraining);

TEST_P(L12_LoraTraining, OnlyAdaptersChangeAlsoOverWeightsInSixteenBits) {
  for (const bool sixteen : {false, true}) {
    config.precision = uniform(sixteen ? DType::BF16 : DType::F32);
    Transformer model(config);
    model.initialize(1);
    const Precision of_adapters = sixteen ? mixed(DType::BF16) : Precision();
    add_lora(model, sixteen ? ".*c_attn|.*c_fc" : ".*",
             {.r = 2, .alpha = 16, .dropout = sixteen ? 0 : 0.1, .precision = of_adapters}, 5);
    expect_ten_steps_of_adapters(model);
    const int64_t n = model.parameters.numel_trainable();
    EXPECT_EQ(context.device.meter().now()[Kind::Gradient], 4 * n);
    EXPECT_EQ(context.device.meter().now()[Kind::Master], sixteen ? 4 * n : 0);
  }
}

// A frozen weight does not save its input. A saves its input, B saves the r numbers per row that A computed,
// and other ops save what the gradient of their input needs. Before the first adapter nothing is recorded.
TEST_P(L12_LoraTraining, WhatIsSavedForAdaptersOnTheFirstProduct) {
  Transformer model(config);
  for (Parameter& frozen : model.parameters) model.parameters.set_trainable(frozen, false);
  Tensor x(context.device, {5, 24}, DType::F32, Kind::Temporary, "x");
  Leaf leaf;
  attach(x, leaf, "x");
  Tape of_layer;
  const Tensor y = (*model.linears()[1])(x);
  EXPECT_EQ(of_layer.saved_bytes(), 0) << "a frozen layer saves no input";
  for (const double dropped : {0.0, 0.5}) {
    Transformer adapted(config);
    adapted.initialize(1);
    add_lora(adapted, ".*c_attn", {.r = 3, .dropout = dropped}, 5);
    Tape tape;
    const Tensor y = batch.loss(adapted);
    for (const Node& node : tape.nodes())
      if (node.op == std::string("linear"))
        for (const Saved& s : node.saved)
          if (s.tensor.defined() && s.tensor.storage().kind() == Kind::Activation) {
            EXPECT_TRUE(s.tensor.last() == 24 || s.tensor.last() == 3) << s.tensor.shape();
            EXPECT_LE(node.inputs[1].shape.numel(), 72 * 3) << "only A and B may save their inputs";
          }
    if (config.residual != Residual::PreNorm) continue;
    // Per token: the input of c_attn and the output of A; q, k, v and the probabilities of 3 heads; the input
    // of ln_2, its mean and 1/std; the input of gelu. For ln_1 of the second block and ln_f: input, mean,
    // 1/std. For the loss: logits, log-sum-exp.
    const int64_t block = (24 + 3) + (72 + 3 * 12) + (24 + 2) + 96, norms = 2 * (24 + 2), last = 31 + 1;
    EXPECT_EQ(tape.saved_bytes(), 4 * 2 * 12 * (2 * block + norms + last));
  }
}

// Recomputed blocks have the same dropout masks, in the model and in the adapters.
TEST_P(L12_LoraTraining, CheckpointingChangesNoGradient) {
  config.dropout = 0.1;
  Transformer model(config);
  randomize(model, 1);
  add_lora(model, ".*", {.r = 2, .dropout = 0.5}, 5);
  draw_b(model);
  for (const bool four_bits : {false, true}) {
    if (four_bits) quantize_frozen(model);
    model.segments = {}, model.from_the_start = false;
    const Values all = gradients(model);
    for (const auto& [name, g] : all) EXPECT_NE(g, std::vector<double>(g.size())) << name;
    for (const std::vector<BlockSegment>& segments :
         {std::vector<BlockSegment>{{1, Keep::Input}, {1, Keep::Input}},
          {{2, Keep::Input}},
          {{1, Keep::LessAttention}, {1, Keep::Input}}}) {
      model.segments = segments;
      EXPECT_EQ(gradients(model), all);
    }
    model.segments = {}, model.from_the_start = true;
    EXPECT_EQ(gradients(model), all);
  }
}

int64_t in_four_bits(int64_t n) { return (n + 1) / 2 + (n + 63) / 64 + 4 * ((n + kSpan - 1) / kSpan); }

// Compared with a model whose weights are the dequantized values; and close to the model before quantization.
TEST_P(L12_LoraTraining, FrozenWeightsInFourBits) {
  Transformer model(config), rounded(config);
  for (Transformer* m : {&model, &rounded}) {
    m->initialize(1);
    add_lora(*m, ".*", {.r = 2, .alpha = 16}, 5);
    draw_b(*m);
  }
  const std::vector<double> before = logits(model);
  const Usage usage = context.device.meter().now();
  quantize_frozen(model);
  int64_t saved = 0;
  for (size_t i = 0; i < model.linears().size(); ++i) {
    const Linear &l = *model.linears()[i], &other = *rounded.linears()[i];
    const int64_t n = l.weight.value.numel();
    saved += 4 * n - in_four_bits(n);
    const std::vector<double> numbers = to_host<double>(dequantize(*l.weight.codes, 0, n, DType::F32)),
                              was = to_host<double>(other.weight.value);
    double squares = 0, errors = 0;
    for (size_t k = 0; k < was.size(); ++k)
      squares += was[k] * was[k], errors += (numbers[k] - was[k]) * (numbers[k] - was[k]);
    EXPECT_LT(errors, 0.12 * 0.12 * squares) << l.name;
    other.weight.assign(numbers);
    expect_refused("the weight is kept in 4 bits", [&] { to_host<double>(l.weight.value); });
  }
  EXPECT_EQ(usage[Kind::Weight] - context.device.meter().now()[Kind::Weight], saved);
  const std::vector<double> got = logits(model), want = logits(rounded);
  double squares = 0, errors = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-5) << "logit " << i;
    squares += before[i] * before[i], errors += (got[i] - before[i]) * (got[i] - before[i]);
  }
  EXPECT_LT(errors, 0.2 * 0.2 * squares);
  EXPECT_GT(errors, 0);
  const Values expected = gradients(rounded), found = gradients(model);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, g] : found)
    for (size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(g[i], expected.at(name)[i], 1e-5) << name;
  expect_ten_steps_of_adapters(model);
  expect_refused("that is not in 4 bits yet", [&] { quantize_frozen(model); });
  for (const auto& call : {&merge_lora, &unmerge_lora})
    expect_refused("the adapter of h.0.attn.c_attn: its weight is kept in 4 bits", [&] { call(model); });
}

// Quantization also frees master copies, and includes layers without an adapter; weights that train are not
// quantized.
TEST_P(L12_LoraTraining, WhatTrainsIsNotQuantized) {
  config.precision = mixed(DType::BF16);
  Transformer model(config);
  model.initialize(1);
  add_lora(model, ".*c_attn", {.r = 2, .precision = mixed(DType::BF16)}, 5);
  Linear& trains = *model.linears()[2];
  model.parameters.set_trainable(trains.weight, true);
  const Tensor master = model.linears()[1]->weight.master;
  const auto codes = to_host<int32_t>(DoubleQuantizer(context.device).quantize(master).codes);
  const Usage usage = context.device.meter().now();
  quantize_frozen(model);
  EXPECT_EQ(to_host<int32_t>(model.linears()[1]->weight.codes->codes), codes)
      << "the codes must be those of the master copy";
  int64_t weights = 0, masters = 0;
  for (const Linear* l : model.linears()) {
    const int64_t n = l->weight.value.numel();
    EXPECT_EQ(l->weight.codes.has_value(), l != &trains) << l->name;
    EXPECT_EQ(l->weight.value.storage().dropped(), l != &trains) << l->name;
    EXPECT_FALSE(l->bias->value.storage().dropped()) << l->name;
    if (l != &trains) weights += 2 * n - in_four_bits(n), masters += 4 * n;
  }
  EXPECT_EQ(usage[Kind::Weight] - context.device.meter().now()[Kind::Weight], weights);
  EXPECT_EQ(usage[Kind::Master] - context.device.meter().now()[Kind::Master], masters);
  EXPECT_TRUE(std::isfinite(loss(model)));
  expect_refused("lora: cannot merge the adapter of h.0.attn.c_attn: its weight is kept in 4 bits",
                 [&] { merge_lora(model); });
}

// 24 layers x 8 x (2048 + 6144) elements train; 12 x 2048^2 x 24 are in 4 bits.
TEST(L12_LoraTrainingOnMeta, AModelOfABillion) {
  Context context("meta");
  Transformer model(transformer_config("polyglot-ko-1.3b"));
  add_lora(model, ".*c_attn", {.r = 8}, 5);
  EXPECT_EQ(model.parameters.numel_trainable(), 1572864);
  EXPECT_EQ(model.parameters.numel(), 1333383168);
  const AdamW optimizer(model.parameters);
  EXPECT_EQ(context.device.meter().now()[Kind::Optimizer], 8 * 1572864);
  const int64_t before = context.device.meter().now()[Kind::Weight], n = int64_t(24) * 12 * 2048 * 2048;
  quantize_frozen(model);
  EXPECT_EQ(before - context.device.meter().now()[Kind::Weight], 4 * n - n / 2 - n / 64 - n / 4096);
}

}  // namespace
}  // namespace gradus
