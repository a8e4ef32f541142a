// Lesson 12: the ways to adapt a model, the exercises, the adapters of GPT-NeoX, the published runs.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "lessons/12_lora/adapt.h"
#include "lessons/12_lora/same.h"
#include "src/io/peft.h"
#include "src/io/safetensors.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "tests/devices.h"
#include "tests/folder_testing.h"
#include "tests/lessons/published_testing.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

TransformerConfig small() {
  TransformerConfig c{.vocab = 40, .context = 8, .layers = 2, .heads = 2, .channels = 16};
  c.output_head = OutputHead::Untied;
  return c;
}
TEST(L12_Lora, EachWayTrainsItsParametersAndBeginsAsTheBase) {
  const Context context("cpu");
  Transformer base(small());
  base.initialize(1);
  const DummyBatch batch = dummy_batch(small(), 2, 8);
  const std::vector<double> logits = to_host<double>(base.logits(batch.ids));
  const int64_t layer = 16 + 48 + (16 + 16) + (16 + 64) + (64 + 16);  // in + out of all four
  const std::vector<std::pair<std::string, int64_t>> trainable{{"all weights", base.parameters.numel()},
                                                               {"output head only", 40 * 16 + 2 * 16},
                                                               {"LoRA r 8, c_attn only", 2 * 8 * 64},
                                                               {"LoRA r 2", 4 * layer},
                                                               {"LoRA r 8", 16 * layer},
                                                               {"LoRA r 2, bf16", 4 * layer},
                                                               {"LoRA r 2, NF4", 4 * layer},
                                                               {"QLoRA r 2", 4 * layer}};
  ASSERT_EQ(trainable.size(), ways_to_adapt().size());
  for (size_t i = 0; i < trainable.size(); ++i) {
    const WayToAdapt& way = ways_to_adapt()[i];
    const auto& [name, count] = trainable[i];
    const bool nf4 = name.ends_with("NF4"), qlora = name.starts_with("QLoRA");
    EXPECT_EQ(way.name, name);
    EXPECT_EQ(way.paged, qlora) << name;
    EXPECT_EQ(predicted_trainable(small(), way), count) << name;
    const auto model = adapted_model(small(), weights_of(base), way, 1);
    EXPECT_EQ(model->parameters.numel_trainable(), count) << name;
    EXPECT_EQ(model->config.precision.value,
              name.ends_with("bf16") || nf4 || qlora ? DType::BF16 : DType::F32);
    EXPECT_EQ(model->segments.size(), qlora ? 2u : 0u) << name << ": checkpointing";
    for (const Linear* l : model->linears()) {
      EXPECT_EQ(l->weight.codes.has_value(), nf4 || qlora) << name;
      if (!adapter_of(*l)) continue;
      EXPECT_EQ(adapter_of(*l)->scale(), 2) << name;
      EXPECT_EQ(adapter_of(*l)->dropout, qlora ? 0.05 : 0) << name;
    }
    const Evaluation evaluation;  // without dropout
    const std::vector<double> got = to_host<double>(model->logits(batch.ids));
    for (size_t k = 0; k < got.size(); ++k)
      ASSERT_NEAR(got[k], logits[k], way.half ? 0.01 : 0) << name << ", logit " << k;
  }
}

// The weights of a way in 4 bits take the predicted bytes.
TEST(L12_Lora, PredictedBytesOfWeightsInFourBits) {
  const Context context("meta");
  const TransformerConfig config = on_cpu(1).model;
  Weights base;
  for (const Parameter& p : Transformer(config).parameters) base.emplace_back(size_t(p.value.numel()));
  for (const WayToAdapt& way : ways_to_adapt()) {
    if (!way.in_4_bits) continue;
    const auto model = adapted_model(config, base, way, 1);
    EXPECT_EQ(current().device.meter().now()[Kind::Weight], predicted_weight_bytes(config, way)) << way.name;
  }
}

TEST(L12_Exercises, OnlyAdaptersTrain) {
  RecordProperty("exercise", "12.1");
  const Context context("cpu");
  Transformer model(small());
  model.initialize(1);
  const int64_t all = model.parameters.numel(), own = int64_t(model.parameters.size());
  model.parameters.set_trainable(model.parameters.find("wpe.weight"), false);
  add_lora(model, ".*attn.*", {.r = 2, .alpha = 3, .dropout = 0.25}, 1);  // two layers in each of two blocks
  const int64_t size = int64_t(model.parameters.size());
  ASSERT_EQ(size, own + 8) << "two new parameters for each of four layers"
                           << usual_mistake({{size == own, "A and B are not added to model.parameters"}});
  const int64_t training = model.parameters.numel_trainable(), adapters = 2 * 2 * ((16 + 48) + (16 + 16));
  EXPECT_EQ(training, adapters) << usual_mistake(
      {{training == 0, "nothing trains: were the adapters added before the model was frozen?"},
       {training > all / 2, "the weights of the model still train"}});
  for (const Parameter& p : model.parameters)
    EXPECT_EQ(p.trainable(), p.name.find(".lora_") != std::string::npos) << p.name;
  for (const Linear* l : model.linears()) {
    const LoraAdapter* adapter = adapter_of(*l);
    ASSERT_EQ(adapter != nullptr, l->name.find("attn") != std::string::npos) << l->name;
    if (!adapter) continue;
    EXPECT_EQ(&adapter->a, &model.parameters.find(l->name + ".lora_A.weight"))
        << usual_mistake({{adapter->a.name == l->name + ".lora_B.weight", "A and B are exchanged"}});
    EXPECT_EQ(&adapter->b, &model.parameters.find(l->name + ".lora_B.weight"));
    EXPECT_EQ(adapter->alpha, 3);
    EXPECT_EQ(adapter->dropout, 0.25);
  }
}

// The output of an adapter for two rows of x, computed by hand.
TEST(L12_Exercises, AnAdapterAddsAScaledProduct) {
  RecordProperty("exercise", "12.2");
  const Context context("cpu");
  Parameters p;
  Parameter &a = p.add("a", {2, 3}, {}), &b = p.add("b", {2, 2}, {});
  a.assign({0.5, 0, -0.5, 1, 1, 0});
  b.assign({0.25, 0, -1, 0.5});
  const LoraAdapter adapter{a, b, 6, 0};  // x A^T = 0.5, 3 and -2, 0
  const Tensor x =
      from_host(current().device, std::vector<double>{2, 1, 1, 0, 0, 4}, {2, 3}, DType::F32, Kind::Data, "x");
  const std::vector<double> y = to_host<double>(adapter(x));
  EXPECT_EQ(y, (std::vector<double>{0.375, 3, -1.5, 6}))
      << usual_mistake({{y == std::vector<double>{0.125, 1, -0.5, 2},
                         "the product of x, A and B is right; the factor alpha/r is left out"},
                        {y == std::vector<double>{0.75, 6, -3, 12},
                         "the product is scaled by alpha; what is alpha divided by?"}});
}

// A layer with an adapter of r = 2 and alpha = 3, whose B is not 0.
class L12_Merge : public ::testing::Test {
 protected:
  L12_Merge() {
    model.initialize(1);
    add_lora(model, ".*mlp.c_fc", {.r = 2, .alpha = 3}, 1);
    for (size_t i = 0; i < b.size(); ++i) b[i] = double(i % 7) - 3;
    adapter_of(l)->b.assign(b);
    before = weight();
  }
  std::vector<double> weight() const { return to_host<double>(l.weight.value); }
  const Context context{"cpu"};
  Transformer model{small()};
  Linear& l = *model.linears()[2];
  std::vector<double> b = std::vector<double>(128), before;
};

TEST_F(L12_Merge, MergingAddsTheProductToTheWeight) {
  RecordProperty("exercise", "12.3");
  const std::vector<double> a = to_host<double>(adapter_of(l)->a.value);
  merge_lora(model);
  const std::vector<double> merged = weight();
  for (size_t o = 0; o < 64; ++o)
    for (size_t i = 0; i < 16; ++i) {
      const double got = merged[o * 16 + i], w = before[o * 16 + i],
                   ba = b[2 * o] * a[i] + b[2 * o + 1] * a[16 + i];
      ASSERT_NEAR(got, w + 1.5 * ba, 1e-6) << usual_mistake(
          {{std::abs(got - 1.5 * ba) < 1e-6, "the weight has become the product; its old value is lost"},
           {std::abs(got - w - ba) < 1e-6, "B A is added without its factor alpha/r"},
           {std::abs(got - w - 3 * ba) < 1e-6, "B A is scaled by alpha: what is alpha divided by?"},
           {o == 0 && std::abs(got - w - 1.5 * (a[0] * b[i] + a[1] * b[16 + i])) < 1e-6,
            "A stands on the left, but the rows of the product are those of B"}});
    }
}

TEST_F(L12_Merge, UnmergingTakesTheProductOut) {
  RecordProperty("exercise", "12.3");
  merge_lora(model);
  const std::vector<double> merged = weight();
  unmerge_lora(model);
  const std::vector<double> after = weight();
  for (size_t i = 0; i < before.size(); ++i) {
    ASSERT_NEAR(after[i], before[i], 1e-6)
        << usual_mistake({{std::abs(after[i] - (2 * merged[i] - before[i])) < 1e-6,
                           "unmerging adds the product a second time: which sign does it need?"}});
  }
  EXPECT_NE(merged, before);
}

// A weight of two tiles: the second tile begins in the middle of a span.
TEST(L12_Exercises, AProductOfCodesIsThatOfTheDequantizedWeight) {
  RecordProperty("exercise", "12.4");
  const Context context("cpu");
  const int64_t in = 1100, out = 1000;
  std::vector<float> values(size_t(in * out));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float((i * 7919) % 1009) / 1009 - 0.5f;
  const Tensor w = from_host(current().device, values, {out, in}, DType::F32, Kind::Weight, "w");
  const DoubleQuantized q = DoubleQuantizer(current().device).quantize(w);
  const Tensor dequantized = dequantize(q, 0, in * out, DType::F32).reshape({out, in});
  std::vector<double> ramp(size_t(3 * in)), zeros(size_t(out), 0);
  for (size_t i = 0; i < ramp.size(); ++i) ramp[i] = double(i % 13) - 6;
  Tensor x = from_host(current().device, ramp, {3, in}, DType::F32, Kind::Data, "x");
  const Tensor bias = from_host(current().device, zeros, {out}, DType::F32, Kind::Weight, "bias");
  std::vector<std::vector<double>> outputs, gradients;
  for (const bool coded : {false, true}) {
    Leaf leaf;
    attach(x, leaf, "x");
    Tape tape;
    const Tensor y = coded ? linear_quantized(x, q, bias) : linear(x, dequantized, bias);
    outputs.push_back(to_host<double>(y));
    tape.backward(y, y);
    gradients.push_back(to_host<double>(leaf.grad));
  }
  // The first output of the second tile, if its weights are taken from the beginning of the span.
  const int64_t row = (1 << 20) / in, begin = row * in / kSpan * kSpan;
  const std::vector<double> from_begin = to_host<double>(dequantize(q, begin, in * out, DType::F32));
  const double shifted = std::inner_product(ramp.begin(), ramp.begin() + in, from_begin.begin(), 0.0);
  for (size_t i = 0; i < outputs[0].size(); ++i)
    ASSERT_NEAR(outputs[1][i], outputs[0][i], 1e-3)
        << "output " << i
        << usual_mistake({{int64_t(i) == row && std::abs(outputs[1][i] - shifted) < 1e-3,
                           "the second tile has weights from before its first row: where in the span does "
                           "this row begin?"}});
  for (size_t i = 0; i < gradients[0].size(); ++i)  // sums of about 1,000 terms, up to some thousands
    ASSERT_NEAR(gradients[1][i], gradients[0][i], 1e-2) << "gradient of x, element " << i;
}

// A GPT-NeoX with two heads and an adapter in which row i of B holds i. PEFT's file has the rows by head.
class L12_NeoXFile : public FolderTest {};
TEST_F(L12_NeoXFile, RowsOfQueryKeyValueAreByHead) {
  RecordProperty("exercise", "12.7");
  const Context context("cpu");
  TransformerConfig c = transformer_config("polyglot-ko-1.3b");
  c.vocab = 10, c.context = 4, c.layers = 1, c.heads = 2, c.channels = 4, c.rotary = 2;
  Transformer model(c);
  model.initialize(1);
  add_lora(model, ".*c_attn", {.r = 1}, 1);
  adapter_of(*model.linears()[0])
      ->b.assign({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});  // q q q q k k k k v v v v
  save_adapters(path("a"), model);
  const SafetensorsFile file(path("a/adapter_model.safetensors"));
  std::vector<float> rows(12);
  file.read("base_model.model.gpt_neox.layers.0.attention.query_key_value.lora_B.weight", DType::F32, {12, 1},
            rows.data());
  EXPECT_EQ(rows, (std::vector<float>{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}))
      << "PEFT's file has q, k and v of the first head, then q, k and v of the second";
}

TEST(L12_Published, BothRunsToThePrintedDigits) {
  for (const auto& [runs, printed] :
       {std::pair{published_lora(), std::vector<double>{2.602, 0.003, 0.006, 4.732}},
        {published_qlora(), std::vector<double>{1.183, 0.006, 0.012, 1.722}}}) {
    ASSERT_EQ(runs.figures.size(), printed.size());
    for (size_t i = 0; i < printed.size(); ++i) {
      EXPECT_EQ(runs.figures[i].published, printed[i]);
      EXPECT_EQ(std::round(runs.figures[i].reproduced * 1000) / 1000, printed[i]) << runs.figures[i].figure;
      EXPECT_LE(runs.figures[i].ours, runs.figures[i].reproduced + 1e-9) << runs.figures[i].figure;
    }
    expect_taken_apart(runs.gap, runs.figures.back());
  }
  // From the shapes: 24 (8 * 2048 + 6144 * 8) parameters; 2 and 4 bytes of gradient, 4 and 8 bytes of states
  // per parameter.
  constexpr int64_t kTrainable = 24 * 8 * (2048 + 6144);
  EXPECT_EQ(published_lora().figures[1].reproduced * 0x1p30, double(2 * kTrainable));
  EXPECT_EQ(published_lora().figures[2].reproduced * 0x1p30, double(4 * kTrainable));
  EXPECT_EQ(published_qlora().figures[1].ours * 0x1p30, double(4 * kTrainable));
  EXPECT_EQ(published_qlora().figures[2].ours * 0x1p30, double(8 * kTrainable));
}

}  // namespace
}  // namespace gradus
