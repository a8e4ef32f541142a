// What adapters and 4 bits refuse, also late in a call; a refusal changes nothing.
#include <cmath>

#include "tests/nn/lora_testing.h"

namespace gradus {
namespace {

struct L12_LoraRefusals : ::testing::Test {
  Context context{"cpu"};
  Transformer model{family("bert")};
  L12_LoraRefusals() { model.initialize(1); }
  void set_weight(const std::string& name, double value) {
    Parameter& p = model.parameters.find(name);
    p.assign(std::vector<double>(size_t(p.value.numel()), value));
  }
  void refuses(const std::string& part, const std::function<void()>& f) { refuses(part, model, f); }
  void refuses(const std::string& part, Transformer& of, const std::function<void()>& f) {
    const Kept before = kept_of(of);
    const int64_t bytes = context.device.meter().now()[Kind::Weight];
    expect_refused(part, f);
    EXPECT_TRUE(kept_of(of) == before) << part;
    EXPECT_EQ(context.device.meter().now()[Kind::Weight], bytes) << part;
  }
  void refuses_to_add(const std::string& part, const std::string& pattern, const LoraArgs& args) {
    refuses(part, [&] { add_lora(model, pattern, args, 5); });
  }
};

TEST_F(L12_LoraRefusals, AdaptersThatCannotBe) {
  const std::string range = "; it can be from 1 to the smaller side";
  refuses_to_add("lora: the pattern '(' is no regular expression", "(", {});
  refuses_to_add(
      "lora: the pattern 'c_attn' matches no whole name of a linear layer; there are: h.0.attn.c_attn, "
      "h.0.attn.c_proj, h.0.mlp.c_fc, h.0.mlp.c_proj, h.1.attn.c_attn, ",
      "c_attn", {});
  refuses_to_add("lora: rank 0 for h.0.attn.c_attn [72,24]" + range, ".*", {.r = 0});
  refuses_to_add("lora: rank 25 for h.1.mlp.c_fc [96,24]" + range, "h.1.mlp.*", {.r = 25});
  // The classifier has two labels: it is the last layer, and the only one for which rank 3 is too large.
  refuses_to_add("lora: rank 3 for classifier [2,24]", ".*", {.r = 3});
  refuses_to_add("lora: adapters that compute in bf16 for a model that computes in fp32", ".*c_attn",
                 {.precision = mixed(DType::BF16)});
  refuses_to_add("lora: dropout 1 must be at least 0 and below 1", ".*c_attn", {.dropout = 1});
  refuses_to_add("lora: dropout -0.5 must be", ".*c_attn", {.dropout = -0.5});
  refuses_to_add("lora: dropout nan must be", ".*c_attn", {.dropout = std::nan("")});
  refuses_to_add("lora: alpha is inf", ".*c_attn", {.alpha = INFINITY});
  add_lora(model, ".*", {.r = 2}, 1);
}

TEST_F(L12_LoraRefusals, NothingIsMergedOrUnmergedOrAddedTwice) {
  const std::string none_to_unmerge = "lora: cannot unmerge: the model has no adapter that is merged",
                    none_to_merge = "lora: cannot merge: the model has no adapter that is not merged";
  refuses(none_to_merge, [&] { merge_lora(model); });
  refuses(none_to_unmerge, [&] { unmerge_lora(model); });
  refuses("lora: there is no frozen weight of a linear layer that", [&] { quantize_frozen(model); });
  add_lora(model, ".*c_attn", {.r = 24}, 5);  // the largest possible rank
  refuses_to_add("lora: the model has adapters already, h.0.attn.c_attn among them", ".*c_fc", {});
  refuses(none_to_unmerge, [&] { unmerge_lora(model); });
  merge_lora(model);
  refuses(none_to_merge, [&] { merge_lora(model); });
}

// One weight (of the first or of the last layer) is not in 4 bits, all others are.
TEST_F(L12_LoraRefusals, WhatCannotBeMergedWholeIsNotMergedInPart) {
  for (const std::string numbers : {"h.0.attn.c_attn.weight", "classifier.weight"}) {
    Transformer mixed(model.config);
    mixed.initialize(1);
    add_lora(mixed, ".*", {.r = 2}, 1);
    for (Parameter& p : mixed.parameters)
      if (p.name.ends_with("lora_B.weight")) p.assign(std::vector<double>(size_t(p.value.numel()), 0.25));
    mixed.parameters.set_trainable(mixed.parameters.find(numbers), true);
    quantize_frozen(mixed);
    for (const auto& call : {&merge_lora, &unmerge_lora})
      refuses("its weight is kept in 4 bits", mixed, [&] { call(mixed); });
  }
}

// A merged weight in 4 bits could never be unmerged, so it could not be saved.
TEST_F(L12_LoraRefusals, WhatIsMergedIsNotQuantized) {
  add_lora(model, ".*c_fc", {.r = 2}, 1);
  merge_lora(model);
  refuses("the adapter of h.0.mlp.c_fc is merged; call unmerge_lora()", [&] { quantize_frozen(model); });
  unmerge_lora(model);
  quantize_frozen(model);
  refuses("that is not in 4 bits yet", [&] { quantize_frozen(model); });
}

TEST_F(L12_LoraRefusals, WhatCannotBeQuantizedWholeIsNotQuantizedInPart) {
  add_lora(model, ".*c_attn", {.r = 2}, 1);
  set_weight("pooler.weight", INFINITY);
  refuses("pooler.weight", [&] { quantize_frozen(model); });
  set_weight("pooler.weight", 0.5);
  quantize_frozen(model);
}

}  // namespace
}  // namespace gradus
