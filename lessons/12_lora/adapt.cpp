#include "lessons/12_lora/adapt.h"

#include <numeric>

#include "lessons/12_lora/four_bits.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/train/race.h"
#include "src/train/text.h"

namespace gradus {

// Learning rates: the ones with the lowest loss on the new text, of several that were tried.
const std::vector<WayToAdapt>& ways_to_adapt() {
  static const std::vector<WayToAdapt> all{
      {.name = "all weights", .learning_rate = 1e-3},
      {.name = "output head only", .learning_rate = 3e-2, .head_only = true},
      {.name = "LoRA r 8, c_attn only", .pattern = ".*c_attn", .r = 8, .learning_rate = 1e-2},
      {.name = kLora, .pattern = ".*", .r = 2, .learning_rate = 1e-2},
      {.name = "LoRA r 8", .pattern = ".*", .r = 8, .learning_rate = 1e-2},
      {.name = "LoRA r 2, bf16", .pattern = ".*", .r = 2, .learning_rate = 1e-2, .half = true},
      {.name = "LoRA r 2, NF4",
       .pattern = ".*",
       .r = 2,
       .learning_rate = 1e-2,
       .half = true,
       .in_4_bits = true},
      {.name = "QLoRA r 2",
       .pattern = ".*",
       .r = 2,
       .learning_rate = 1e-2,
       .dropout = 0.05,
       .half = true,
       .in_4_bits = true,
       .checkpointed = true,
       .paged = true},
  };
  return all;
}

Adaptation on_cpu(int64_t steps) {
  Adaptation a{
      {.vocab = 256, .context = 64, .layers = 2, .heads = 4, .channels = 128}, 8, steps * 25 / 8, steps};
  a.model.output_head = OutputHead::Untied;
  return a;
}
Adaptation for_emulation(int64_t steps) {
  Adaptation a = on_cpu(steps);
  a.model.context = 16, a.model.layers = 1, a.model.channels = 32, a.batch = 4;
  return a;
}

Weights weights_of(const Transformer& model) {
  Weights weights;
  for (const Parameter& p : model.parameters) weights.push_back(to_host<double>(p.kept()));
  return weights;
}

std::unique_ptr<Transformer> base_model(const TransformerConfig& config, const Weights& base) {
  auto model = std::make_unique<Transformer>(config);
  auto values = base.begin();
  for (Parameter& p : model->parameters) p.assign(*values++);
  return model;
}

std::unique_ptr<Transformer> adapted_model(const TransformerConfig& config, const Weights& base,
                                           const WayToAdapt& way, uint64_t seed) {
  TransformerConfig c = config;
  if (way.half) c.precision = uniform(DType::BF16);
  auto model = base_model(c, base);
  if (way.head_only)
    for (Parameter& p : model->parameters)
      model->parameters.set_trainable(p, p.name.starts_with("ln_f") || p.name.starts_with("lm_head"));
  if (way.checkpointed) model->segments.assign(model->blocks.size(), {1, Keep::Input});
  if (way.pattern.empty()) return model;
  add_lora(*model, way.pattern,
           {.r = way.r,
            .alpha = 2.0 * double(way.r),
            .dropout = way.dropout,
            .precision = way.half ? mixed(DType::BF16) : Precision{}},
           seed);
  if (way.in_4_bits) quantize_frozen(*model);
  return model;
}

void move_states_to_host(Device& device) {
  for (const auto& ask : device.allocator().make_room)
    while (ask()) {
    }
}

Adapted measure_adapted(const Transformer& model, const StepRecorder& recorder, const Adaptation& a,
                        const Loader& new_text, const Loader& old_text, const std::string& name) {
  Context& context = current();
  Adapted run{
      {}, recorder.losses, model.parameters.numel_trainable(), context.device.meter().now()[Kind::Gradient]};
  run.row.name = name;
  recorder.fill(run.row, a.batch * a.model.context);
  if (context.host) run.row.host_peak = context.host->meter().at_peak();
  run.row.extra = {{"trainable", double(run.trainable)},
                   {"trainable, %", 100 * double(run.trainable) / double(model.parameters.numel())}};
  if (!context.device.has_data()) {
    run.row.ms_per_step = run.row.tokens_per_s = run.row.loss_first = run.row.loss_last = std::nullopt;
    return run;
  }
  run.row.loss_held_out = held_out_loss(model, new_text, a.batch);
  run.row.extra.emplace_back(kOldText, held_out_loss(model, old_text, a.batch));
  return run;
}

int64_t predicted_trainable(const TransformerConfig& c, const WayToAdapt& way) {
  if (way.head_only) return (c.vocab + 2) * c.channels;
  if (way.pattern.empty()) return c.parameter_count();
  const int64_t attention = 1 + 3;  // in + out, in channels; then c_proj and the two layers of the MLP
  return c.layers * way.r * c.channels *
         (way.pattern == ".*" ? attention + (1 + 1) + (1 + 4) + (4 + 1) : attention);
}

int64_t predicted_weight_bytes(const TransformerConfig& c, const WayToAdapt& way) {
  const int64_t square = c.channels * c.channels;
  const int64_t rest = c.parameter_count() - c.layers * 12 * square + predicted_trainable(c, way);
  return c.layers * (nf4_bytes(3 * square) + nf4_bytes(square) + 2 * nf4_bytes(4 * square)) + 2 * rest;
}

void check_bytes(const TransformerConfig& c, const WayToAdapt& way, const Adapted& run, Report& report) {
  const int64_t states = 8 * predicted_trainable(c, way);
  const Usage& peak = run.row.peak.value();
  report.check_equal(way.name + ": optimizer states on the device at the peak, bytes", peak[Kind::Optimizer],
                     way.paged ? 0 : states);
  if (way.paged)
    report.check_equal(way.name + ": optimizer states on the host, bytes",
                       run.row.host_peak.value()[Kind::Optimizer], states);
  report.check_equal(way.name + ": gradients, bytes", run.gradient_bytes, states / 2);
  if (way.in_4_bits)
    report.check_equal(way.name + ": weights, bytes", peak[Kind::Weight], predicted_weight_bytes(c, way));
}

void compare_ways(const std::vector<Adapted>& all, int64_t steps, Report& report) {
  const std::string skip = is_for_steps(kWholeRun, steps);
  const auto run_of = [&](const std::string& name) -> const ReportRow& {
    for (const Adapted& a : all)
      if (a.row.name == name) return a.row;
    fail("no way to adapt is called ", name);
  };
  const auto difference = [&](const std::string& name, const std::string& other) {
    return run_of(name).loss_held_out.value() / run_of(other).loss_held_out.value() - 1;
  };
  for (const auto& [name, other, bound] : {std::tuple(kLora, "all weights", 0.05),
                                           {"LoRA r 2, NF4", "LoRA r 2, bf16", 0.03},
                                           {"QLoRA r 2", kLora, 0.05}})
    report.check_at_most(
        std::string(name) + " compared with " + other + ": held-out loss, relative difference",
        difference(name, other), bound, skip);
  report.check_at_least("output head only compared with all weights: held-out loss, relative difference",
                        difference("output head only", "all weights"), 0.2, skip);
  const auto bytes = [](const ReportRow& row) {
    return double(row.peak->allocated() - (*row.peak)[Kind::Workspace]);
  };
  report.check_at_most("QLoRA r 2 / LoRA r 2: peak without workspace",
                       bytes(run_of("QLoRA r 2")) / bytes(run_of(kLora)), 0.4);
}

void draw_losses(const std::vector<Adapted>& all, double floor, const std::string& path) {
  LinePlot plot{"Training loss on the new text, without the first steps",
                "step",
                "nats per byte, mean of 20 steps",
                {},
                {{"entropy of the grammar", floor}}};
  for (size_t i = 0; i < all.size(); ++i) {
    if (ways_to_adapt()[i].half) continue;  // these curves lie on that of LoRA r 2
    std::vector<double> losses = smooth(all[i].losses);
    const size_t first = losses.size() / 15;  // the steep beginning would press all later points together
    losses.erase(losses.begin(), losses.begin() + ptrdiff_t(first));
    std::vector<double> steps(losses.size());
    std::iota(steps.begin(), steps.end(), double(first + 1));
    plot.series.push_back({all[i].row.name, steps, losses});
  }
  write_file(path, draw(plot));
}

}  // namespace gradus
