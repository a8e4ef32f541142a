#include "lessons/published/measure.h"

#include <functional>

#include "src/nn/lora.h"
#include "src/optim/adamw_8bit.h"
#include "src/tensor/context.h"
#include "src/train/dummy.h"

namespace gradus {

static Alive alive_at_peak(const std::vector<MemoryEvent>& history) {
  Alive alive;
  for (const MemoryEvent& block : memory_peak(history).alive)
    alive[{block.kind, block.name}] += block.requested;
  return alive;
}

// Three steps: optimizer states and gradients exist from the second step on, and the allocator's segments no
// longer change after it.
static MetaRun measure(Device& device, const std::function<void()>& step,
                       const std::function<void()>& zero_grad) {
  MetaRun run;
  run.loaded_reserved = device.meter().reserved();
  run.loaded_allocated = device.meter().now().allocated();
  try {
    for (int i = 0; i < 3; ++i) {
      step();
      if (i == 0) run.updated = device.meter().now();
      zero_grad();
    }
  } catch (const OutOfMemory&) {
    for (const MemoryEvent& e : device.allocator().history())
      if (e.action == Action::OutOfMemory) run.failed_request = e.requested;
  }
  run.peak_reserved = device.meter().peak_reserved();
  run.peak = device.meter().at_peak();
  run.alive = alive_at_peak(device.allocator().history());
  return run;
}

TransformerConfig MetaSetting::config() const {
  TransformerConfig c = transformer_config(model);
  if (half) c.precision = precision_recipe("half");
  if (mixed) c.precision = precision_recipe("mixed-fp16");
  if (c.output_head == OutputHead::Pooled) c.labels = 2;
  return c;
}

std::unique_ptr<Optimizer> MetaSetting::optimizer(Parameters& p) const {
  using Update = HuggingFaceBert::Update;
  if (update == Update::Adam8bit) return std::make_unique<AdamW8bit>(p);
  if (update == Update::Adafactor)
    return std::make_unique<Adafactor>(p, AdafactorArgs{.step_size = StepSize::Given});
  return std::make_unique<AdamW>(p);
}

MetaRun run_ours(const MetaSetting& set) {
  Context context("meta", 1, kBudget);
  Device& device = context.device;
  device.allocator().keep_history();
  const TransformerConfig config = set.config();
  Transformer model(config);
  if (set.tuning != Tuning::All)
    add_lora(model, ".*c_attn",
             {.r = 8,
              .alpha = 32,
              .dropout = 0.05,
              .precision = set.tuning == Tuning::QLora ? precision_recipe("mixed-fp16") : config.precision},
             1);
  if (set.tuning == Tuning::QLora) quantize_frozen(model);
  if (set.checkpoints) model.segments.assign(size_t(config.layers), {1, Keep::Input});
  std::unique_ptr<Optimizer> optimizer;  // created in the first step, so `loaded` is without its states
  const DummyBatch batch = dummy_batch(config, set.batch, set.tokens);
  const auto step = [&] {
    if (!optimizer) optimizer = set.optimizer(model.parameters);
    model.parameters.zero_grad();
    for (int64_t i = 0; i < set.micro_batches; ++i) {
      Tape tape;
      tape.backward(batch.loss(model));
    }
    optimizer->step(1e-3);
  };
  return measure(device, step, [] {});
}

MetaRun run_reproduced(const MetaSetting& set) {
  Device device("meta", kBudget);
  device.allocator().keep_history();
  if (set.half) {
    HuggingFaceNeoX model(device, set.config(), set.tuning);
    model.checkpoints = set.checkpoints;
    return measure(
        device, [&] { model.step(set.batch, set.tokens, set.micro_batches); }, [&] { model.zero_grad(); });
  }
  HuggingFaceBert model(device, set.config());
  model.checkpoints = set.checkpoints;
  if (set.mixed) model.autocast();
  return measure(
      device, [&] { model.step(set.batch, set.tokens, set.micro_batches, set.update); }, [] {});
}

std::vector<Difference> take_apart(const MetaRun& reproduced, const MetaRun& ours) {
  std::vector<Difference> rows;
  const auto of_kind = [&](Kind k) { return reproduced.peak[k] - ours.peak[k]; };
  int64_t other = of_kind(Kind::Activation);
  const auto of_tensor = [&](const char* tensor, const char* name, const char* why) {
    const auto in = [&](const MetaRun& run) {
      const auto found = run.alive.find({Kind::Activation, tensor});
      return found == run.alive.end() ? 0 : found->second;
    };
    const int64_t bytes = in(reproduced)-in(ours);
    rows.push_back({name, bytes, why});
    other -= bytes;
  };
  of_tensor("scores", "attention scores",
            "until PyTorch 1.10 softmax saves its input, although it needs only the dtype");
  of_tensor("dropped softmax", "softmax after dropout", "gradus recomputes it from softmax and mask");
  of_tensor("dropout mask", "dropout masks", "one byte per element; gradus recomputes them");
  rows.push_back(
      {"other activations", other, "copies of q, k and v per head; gradus saves the product itself"});
  rows.push_back({"temporaries", of_kind(Kind::Temporary), "gradients of activations in the last MLP"});
  rows.push_back(
      {"weights, gradients, states",
       of_kind(Kind::Weight) + of_kind(Kind::Master) + of_kind(Kind::Gradient) + of_kind(Kind::Optimizer),
       "optimizer states; with 8 bits a scale per 2048 elements reproduced, per 256 in gradus"});
  rows.push_back(
      {"data and buffers", of_kind(Kind::Data) + of_kind(Kind::Other), "reproduced: tokens in int64"});
  rows.push_back({"library workspace", of_kind(Kind::Workspace),
                  "only gradus counts it; cuBLAS allocates it outside of PyTorch's allocator"});
  rows.push_back(
      {"rounding", reproduced.peak.rounding - ours.peak.rounding, "sizes rounded up by the allocator"});
  const auto slack = [](const MetaRun& r) { return r.peak_reserved - r.peak.allocated(); };
  rows.push_back(
      {"allocator slack", slack(reproduced) - slack(ours), "reserved, but not allocated at the peak"});
  return rows;
}

std::vector<Difference> take_apart_updated(const Usage& reproduced, const Usage& ours) {
  const auto of = [&](std::initializer_list<Kind> kinds) {
    int64_t bytes = 0;
    for (const Kind k : kinds) bytes += reproduced[k] - ours[k];
    return bytes;
  };
  return {{"weights", of({Kind::Weight, Kind::Master}),
           "the published run has fp32 for weights that are not in 4 bits"},
          {"gradients", of({Kind::Gradient}), ""},
          {"states", of({Kind::Optimizer}), ""},
          {"buffers", of({Kind::Other, Kind::Data}), "masks and rotary tables per layer; gradus has none"},
          {"library workspace", of({Kind::Workspace}), "two workspaces of cuBLAS, one of gradus"},
          {"outputs", of({Kind::Activation, Kind::Temporary}), "tensors that the forward pass returned"},
          {"rounding", reproduced.rounding - ours.rounding, "sizes rounded up by the allocator"}};
}

PublishedFigure nvml_figure(const char* name, int64_t published, int64_t reproduced, int64_t ours,
                            const char* why) {
  const auto nvml = [](int64_t reserved) { return double(reserved) / kMiB + kOutsideMiB; };
  return {"BERT-large", name, "MiB", double(published), nvml(reproduced), nvml(ours), why};
}

PublishedFigure gib_figure(const std::string& name, double published, int64_t reproduced, int64_t ours,
                           const char* why) {
  const auto gib = [](int64_t bytes) { return double(bytes) / double(1024 * kMiB); };
  return {"polyglot-ko-1.3b", name, "GiB", published, gib(reproduced), gib(ours), why};
}

PublishedFigure peak_figure(const char* name, int64_t published, const MetaRun& reproduced,
                            const MetaRun& ours, const char* why) {
  return nvml_figure(name, published, reproduced.peak_reserved, ours.peak_reserved, why);
}
PublishedFigure peak_figure(const char* name, int64_t published, const MetaSetting& set, const char* why) {
  return peak_figure(name, published, run_reproduced(set), run_ours(set), why);
}

Gap finished(Gap gap) {
  for (const Difference& d : gap.differences) gap.named += d.bytes;
  gap.unexplained = gap.whole - gap.named;
  return gap;
}
Gap gap_of(const std::string& run, int64_t published, const MetaRun& reproduced, const MetaRun& ours) {
  return finished({run + ": reproduced - gradus", "published - gradus", take_apart(reproduced, ours), 0,
                   (published - kOutsideMiB) * kMiB - ours.peak_reserved});
}

}  // namespace gradus
