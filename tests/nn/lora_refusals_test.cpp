// Refusals that come late: what came before them is as it was.
#include <gtest/gtest.h>

#include <cmath>

#include "src/data/dummy.h"
#include "src/nn/lora.h"
#include "tests/nn/families_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L12_LoraRefusals : ::testing::Test {
  Context context{"cpu"};
  Transformer model{family("bert")};
  L12_LoraRefusals() { model.initialize(1); }
  std::vector<double> logits() {
    const Evaluation evaluation;
    const Tensor ids = random_tokens({2, 5}, 31, 1, "ids"), types = random_tokens({2, 5}, 2, 2, "types");
    return to_host<double>(model.logits(ids, types));
  }
  void set_weight(const std::string& name, double value) {
    Parameter& p = model.parameters.find(name);
    p.assign(std::vector<double>(size_t(p.value.numel()), value));
  }
};

// The classifier has two labels: of all layers the last, and the only one for which rank 3 is too much.
TEST_F(L12_LoraRefusals, TheSmallestOfAllMatchedLayersBoundsTheRank) {
  expect_refused("lora: rank 3 for classifier [2,24]", [&] { add_lora(model, ".*", {.r = 3}, 1); });
  EXPECT_EQ(model.parameters.numel_trainable(), model.parameters.numel());
  add_lora(model, ".*", {.r = 2}, 1);
}

// The last layer's weight is numbers, the ones before it are codes; and the other way around.
TEST_F(L12_LoraRefusals, WhatCannotBeMergedWholeIsNotMergedInPart) {
  for (const std::string numbers : {"h.0.attn.c_attn.weight", "classifier.weight"}) {
    Transformer mixed(model.config);
    mixed.initialize(1);
    add_lora(mixed, ".*", {.r = 2}, 1);
    Parameter& stays = mixed.parameters.find(numbers);
    for (Parameter& p : mixed.parameters)
      if (p.name.ends_with("lora_B.weight")) p.assign(std::vector<double>(size_t(p.value.numel()), 0.25));
    mixed.parameters.set_trainable(stays, true);
    quantize_frozen(mixed);
    const std::vector<double> before = to_host<double>(stays.value);
    expect_refused("its weight is kept in 4 bits", [&] { merge_lora(mixed); });
    EXPECT_EQ(to_host<double>(stays.value), before) << numbers;
    for (const Linear* l : mixed.linears()) EXPECT_FALSE(l->weight.merged) << l->name;
  }
}

// In 4 bits it could never be unmerged, and so not be saved.
TEST_F(L12_LoraRefusals, WhatIsMergedIsNotQuantized) {
  add_lora(model, ".*c_fc", {.r = 2}, 1);
  merge_lora(model);
  expect_refused("the adapter of h.0.mlp.c_fc is merged; unmerge_lora()", [&] { quantize_frozen(model); });
  for (const Linear* l : model.linears()) EXPECT_FALSE(l->weight.codes) << l->name;
  unmerge_lora(model);
  quantize_frozen(model);
}

TEST_F(L12_LoraRefusals, WhatCannotBeQuantizedWholeIsNotQuantizedInPart) {
  add_lora(model, ".*c_attn", {.r = 2}, 1);
  set_weight("pooler.weight", NAN);
  expect_refused("pooler.weight", [&] { quantize_frozen(model); });
  for (const Linear* l : model.linears()) {
    EXPECT_FALSE(l->weight.codes) << l->name;
    EXPECT_FALSE(l->weight.value.storage().empty()) << l->name;
  }
  set_weight("pooler.weight", 0.5);
  const std::vector<double> before = logits();
  quantize_frozen(model);
  EXPECT_NE(logits(), before);
}

}  // namespace
}  // namespace gradus
