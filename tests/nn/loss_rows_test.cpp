// TransformerConfig::loss_rows: the loss of a model that computes the logits of some tokens at a time.
#include <gtest/gtest.h>

#include <cmath>

#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Values = std::vector<double>;

// GPT-2's head is tied to its embedding, GPT-NeoX's is not.
TransformerConfig small(const char* family, const char* recipe, int64_t rows) {
  TransformerConfig config = transformer_config(family);
  config.vocab = 31, config.context = 8, config.layers = 2, config.heads = 2, config.channels = 16;
  config.dropout = 0.1, config.precision = precision_recipe(recipe), config.loss_rows = rows;
  if (config.rotary > 0) config.rotary = 4;
  return config;
}

struct Trained {
  Values losses, numbers;  // numbers: the last gradients and weights
};
// Steps of two micro-batches of 2 x 8 tokens.
Trained trained(
    const TransformerConfig& config, int steps,
    const std::function<void(Transformer&)>& keep = [](Transformer&) {}) {
  Context context("cpu", 7);
  Transformer model(config);
  model.initialize(1);
  keep(model);
  AdamW optimizer(model.parameters);
  Trained result;
  for (int step = 0; step < steps; ++step) {
    model.parameters.zero_grad();
    for (int micro = 0; micro < 2; ++micro) {
      context.first_sample = 2 * micro;
      const DummyBatch batch = dummy_batch(config, 2, 8, uint64_t(2 * step + micro + 1));
      Tape tape;
      const Tensor loss = batch.loss(model);
      result.losses.push_back(item(loss));
      tape.backward(loss);
    }
    optimizer.step(1e-3);
  }
  for (const Parameter& p : model.parameters)
    for (const Tensor& t : {p.leaf.grad, p.value})
      for (const double x : to_host<double>(t)) result.numbers.push_back(x);
  return result;
}

constexpr const char* kFamilies[] = {"gpt2", "polyglot-ko-1.3b"};

TEST(L16_LossRows, LossesAndGradientsAreThoseOfAllLogitsAtOnce) {
  for (const char* family : kFamilies) {
    const Trained all = trained(small(family, "fp32", 0), 1);
    for (const int64_t rows : {1, 5, 16, 100}) {
      const Trained in_parts = trained(small(family, "fp32", rows), 1);
      for (size_t i = 0; i < all.losses.size(); ++i)
        EXPECT_NEAR(in_parts.losses[i], all.losses[i], 1e-5) << family << " " << rows;
      ASSERT_EQ(in_parts.numbers.size(), all.numbers.size());
      double most = 0;
      for (size_t i = 0; i < all.numbers.size(); ++i)
        most = std::max(most, std::abs(in_parts.numbers[i] - all.numbers[i]));
      EXPECT_LT(most, 1e-5) << family << " " << rows;
    }
  }
}

TEST(L16_LossRows, CheckpointedBlocksGiveTheSameNumbersToTheBit) {
  for (const char* family : kFamilies)
    for (const char* recipe : {"fp32", "mixed", "half"}) {
      const TransformerConfig config = small(family, recipe, 5);
      const Trained all = trained(config, 4);
      for (const double loss : all.losses) ASSERT_TRUE(std::isfinite(loss)) << family << " " << recipe;
      for (const Keep keep : {Keep::Input, Keep::LessAttention}) {
        const Trained again = trained(config, 4, [&](Transformer& m) { m.segments = {{2, keep}}; });
        EXPECT_EQ(again.losses, all.losses) << family << " " << recipe;
        EXPECT_EQ(again.numbers, all.numbers) << family << " " << recipe;
      }
    }
}

// The share of a micro-batch of the mean over the targets of the batch.
TEST(L16_LossRows, TheMeanIsOverTheTargetsThatAreCounted) {
  Context context("cpu", 7);
  double losses[2];
  for (const int64_t rows : {0, 5}) {
    Transformer model(small("gpt2", "fp32", rows));
    model.initialize(1);
    const DummyBatch batch = dummy_batch(model.config, 2, 8);
    const Tensor count = from_host(context.device, Values{64}, {1}, DType::F32, Kind::Data, "count");
    const Evaluation evaluation;
    losses[rows > 0] = item(model.loss(batch.ids, batch.targets, {}, count));
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-6);
}

TEST(L16_LossRows, NegativeRowsAndRowsOfAPooledHeadAreRefused) {
  const Context context("meta");
  TransformerConfig config = small("gpt2", "fp32", -1);
  expect_refused("loss_rows is -1", [&] { config.validate(); });
  config = small("bert-base", "fp32", 5);
  config.labels = 2;
  expect_refused("loss_rows is 5; it is 0 or more, and 0 with a pooled head", [&] { config.validate(); });
  config.loss_rows = 0;
  EXPECT_NO_THROW(config.validate());
}

}  // namespace
}  // namespace gradus
