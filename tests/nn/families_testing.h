// Small models of the three families, for tests that all of them must pass.
#pragma once
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
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

// One training step; returns its loss.
inline double train_step(Transformer& model, Optimizer& optimizer, const DummyBatch& batch, double rate,
                         double most_norm = 1) {
  Tape tape;
  const Tensor loss = batch.loss(model);
  const double value = item(loss);
  model.parameters.zero_grad();
  tape.backward(loss);
  optimizer.clip_grad_norm(most_norm);
  optimizer.step(rate);
  return value;
}

}  // namespace gradus
