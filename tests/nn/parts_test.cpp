// A model in parts, each in a separate Context; the test passes activations and their gradients between them:
// weights, masks, losses and updates are bitwise equal to those of the whole model.
#include <memory>
#include <numeric>

#include "tests/devices.h"
#include "tests/nn/families_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Numbers = std::map<std::string, std::vector<double>>;  // by parameter name
Numbers weights_of(const Transformer& model) {
  Numbers all;
  for (const Parameter& p : model.parameters) all[p.name] = to_host<double>(p.value);
  return all;
}

struct Ran {
  std::vector<double> losses;
  Numbers first, last;
};

constexpr int kSteps = 3;
constexpr uint64_t kSeed = 5;
const AdamWArgs kArgs{.weight_decay = 0.1f};

Ran run_whole(const char* device, const TransformerConfig& config) {
  Context context(device, kSeed);
  Transformer model(config);
  model.initialize(kSeed);
  Ran ran{.losses = {}, .first = weights_of(model), .last = {}};
  AdamW optimizer(model.parameters, kArgs);
  for (int step = 0; step < kSteps; ++step)
    ran.losses.push_back(
        train_step(model, optimizer, dummy_batch(config, 2, config.context, uint64_t(step)), 1e-2, 0));
  ran.last = weights_of(model);
  return ran;
}

struct Stage {
  Stage(const char* device, const TransformerConfig& config, const ModelPart& part)
      : context(device, kSeed), model(config, Allocate::Now, part) {
    model.initialize(kSeed);
    optimizer = std::make_unique<AdamW>(model.parameters, kArgs);
  }
  // The output of this part for the batch and for `before`, the output of the previous part; keeps the tape
  // and the tensors for the backward pass.
  Tensor forward(const DummyBatch& batch, const std::vector<double>& before, const Shape& shape) {
    tape = std::make_unique<Tape>();
    model.parameters.zero_grad();
    Tensor x;
    if (model.part.embedding) {
      x = model.embed(batch.ids, batch.types);
    } else {
      leaf = std::make_unique<Leaf>();
      x = from_host(context.device, before, shape, DType::F32, Kind::Activation, "received");
      leaf->shape = shape;
      attach(x, *leaf, "received");
    }
    x = model.through_blocks(x);
    y = model.part.head ? cross_entropy(model.head(x), batch.targets) : x;
    return y;
  }
  Context context;
  Transformer model;
  std::unique_ptr<AdamW> optimizer;
  std::unique_ptr<Tape> tape;
  std::unique_ptr<Leaf> leaf;
  Tensor y;
};

// Adds the two gradients of a tied embedding: the head's comes first, as in the whole model's backward pass.
void add_tied(Stage& first, Stage& last) {
  Parameter &embedding = first.model.parameters.find("wte.weight"),
            &head = last.model.parameters.find("wte.weight");
  last.context.make_current();
  std::vector<float> sum = to_host<float>(head.leaf.grad);
  first.context.make_current();
  const std::vector<float> more = to_host<float>(embedding.leaf.grad);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  const std::vector<double> both(sum.begin(), sum.end());
  copy_from_host(embedding.leaf.grad, both);
  last.context.make_current();
  copy_from_host(head.leaf.grad, both);
}

// `cuts`: the first blocks of the second part and of all later parts.
Ran run_in_parts(const char* device, const TransformerConfig& config, const std::vector<int64_t>& cuts) {
  std::vector<std::unique_ptr<Stage>> stages;
  for (size_t i = 0; i <= cuts.size(); ++i)
    stages.push_back(std::make_unique<Stage>(
        device, config,
        ModelPart{.ranges = {{i == 0 ? 0 : cuts[i - 1], i == cuts.size() ? config.layers : cuts[i]}},
                  .embedding = i == 0,
                  .head = i == cuts.size()}));
  Ran ran;
  const auto collect = [&](Numbers& all) {
    for (const auto& s : stages) {
      s->context.make_current();
      for (const auto& [name, numbers] : weights_of(s->model)) {
        const auto [at, is_new] = all.emplace(name, numbers);
        EXPECT_EQ(at->second, numbers) << name << " must be equal in both parts";
      }
    }
  };
  collect(ran.first);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> passed;
    Shape shape;
    for (const auto& s : stages) {
      s->context.make_current();
      const Tensor y = s->forward(dummy_batch(config, 2, config.context, uint64_t(step)), passed, shape);
      passed = to_host<double>(y), shape = y.shape();
    }
    ran.losses.push_back(passed[0]);
    for (auto s = stages.rbegin(); s != stages.rend(); ++s) {
      (*s)->context.make_current();
      const bool is_last = s == stages.rbegin();
      (*s)->tape->backward((*s)->y, is_last ? Tensor()
                                            : from_host((*s)->context.device, passed, (*s)->y.shape(),
                                                        DType::F32, Kind::Temporary, "gradient"));
      if (!(*s)->model.part.embedding) passed = to_host<double>((*s)->leaf->grad);
    }
    if (config.output_head == OutputHead::Tied && stages.size() > 1)
      add_tied(*stages.front(), *stages.back());
    for (const auto& s : stages) {
      s->context.make_current();
      s->tape.reset();
      s->optimizer->step(1e-2);
    }
  }
  collect(ran.last);
  return ran;
}

TEST(L03_Parts, WeightsMasksLossesAndUpdatesAreThoseOfTheWhole) {
  for (const char* device : devices_with_data())
    for (const char* name : kFamilies) {
      TransformerConfig config = family(name);
      config.layers = 3, config.dropout = 0.2;
      const Ran whole = run_whole(device, config);
      for (const std::vector<int64_t>& cuts :
           std::vector<std::vector<int64_t>>{{}, {0}, {1}, {3}, {1, 2}, {0, 3}}) {
        if (cuts.size() > 1 && std::string_view(device) == "emu") continue;
        const Ran parts = run_in_parts(device, config, cuts);
        const std::string what = std::string(device) + ", " + name + ", " + std::to_string(cuts.size()) +
                                 " cuts, at " + (cuts.empty() ? "none" : std::to_string(cuts[0]));
        EXPECT_EQ(parts.first, whole.first) << what;
        EXPECT_EQ(parts.losses, whole.losses) << what;
        EXPECT_EQ(parts.last, whole.last) << what;
      }
    }
}

TEST(L03_Parts, WhatAPartLacksIsRefused) {
  Context context("cpu");
  const TransformerConfig config = family("gpt");
  const DummyBatch batch = dummy_batch(config, 2, 4);
  const Transformer middle(config, Allocate::Now,
                           ModelPart{.ranges = {{1}}, .embedding = false, .head = false});
  EXPECT_EQ(middle.blocks.size(), 1u);
  EXPECT_EQ(middle.parameters.size(), 12u);
  const Tensor x(context.device, {2, 4, config.channels}, DType::F32, Kind::Temporary, "x");
  expect_refused("this part of a model has no embedding", [&] { middle.logits(batch.ids); });
  expect_refused("this part of a model has no head", [&] { middle.head(x); });
  expect_refused("blocks from 3 to 2 of 2; a part begins",
                 [&] { Transformer(config, Allocate::Now, ModelPart{.ranges = {{3}}}); });
  expect_refused("blocks from -1 to 2 of 2",
                 [&] { Transformer(config, Allocate::Now, ModelPart{.ranges = {{-1}}}); });
  expect_refused("blocks from 0 to -1 of 2",
                 [&] { Transformer(config, Allocate::Now, {.ranges = {{.end = -1}}}); });
}

}  // namespace
}  // namespace gradus
