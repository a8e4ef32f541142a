// Small models of the three families, for what must hold for each of them.
#pragma once
#include "tests/nn/generate_testing.h"

namespace gradus {

constexpr const char* kFamilies[] = {"gpt", "bert", "neox"};
inline TransformerConfig family(std::string_view name) {
  TransformerConfig config = transformer_config(name == "gpt"    ? "gpt2"
                                                : name == "bert" ? "bert-base"
                                                                 : "polyglot-ko-1.3b");
  config.vocab = 31, config.context = 12, config.layers = 2, config.heads = 3, config.channels = 24;
  config.dropout = 0;
  if (config.rotary > 0) config.rotary = 4;
  if (config.output_head == OutputHead::Pooled) config.labels = 2;
  return config;
}

}  // namespace gradus
