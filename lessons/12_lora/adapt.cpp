#include "lessons/12_lora/adapt.h"

#include <numeric>

#include "src/core/progress.h"
#include "src/io/atomic_file.h"
#include "src/io/peft.h"
#include "src/io/plot.h"
#include "src/optim/optimizer.h"
#include "src/train/race.h"
#include "src/train/step_recorder.h"
#include "src/train/text.h"

namespace gradus {

// Learning rates: of some that were tried, those with the lowest loss.
const std::vector<WayToAdapt>& ways_to_adapt() {
  static const std::vector<WayToAdapt> all{
      {.name = "all weights", .learning_rate = 1e-3},
      {.name = "head only", .learning_rate = 3e-2, .head_only = true},
      {.name = "c_attn, r 8", .pattern = ".*c_attn", .r = 8, .learning_rate = 1e-2},
      {.name = "r 1", .pattern = ".*", .r = 1, .learning_rate = 1e-2},
      {.name = "r 2", .pattern = ".*", .r = 2, .learning_rate = 1e-2},
      {.name = "r 8", .pattern = ".*", .r = 8, .learning_rate = 1e-2},
      {.name = "r 2, bf16", .pattern = ".*", .r = 2, .learning_rate = 1e-2, .half = true},
      {.name = "r 2, 4 bits",
       .pattern = ".*",
       .r = 2,
       .learning_rate = 1e-2,
       .half = true,
       .in_4_bits = true},
  };
  return all;
}

static Weights weights_of(const Transformer& model) {
  Weights weights;
  for (const Parameter& p : model.parameters) weights.push_back(to_host<double>(p.kept()));
  return weights;
}

static void train(Transformer& model, const std::string& name, const Loader& loader, int64_t batch,
                  int64_t steps, double learning_rate, StepRecorder& recorder) {
  Context& context = current();
  Tensor inputs(context.device, {batch, model.config.context}, DType::I32, Kind::Data, "inputs");
  Tensor targets(context.device, {batch, model.config.context}, DType::I32, Kind::Data, "targets");
  AdamW optimizer(model.parameters, {.weight_decay = 0.01f});
  const bool has_data = context.device.has_data();
  Progress progress(name, steps);
  for (int64_t step = 0; step < steps; ++step) {
    recorder.begin();
    read_batch(loader, step, inputs, targets);
    Tape tape;
    const Tensor loss = model.loss(inputs, targets);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.clip_grad_norm(1.0);
    optimizer.step(warmup_cosine(step, steps / 20, steps, learning_rate, learning_rate / 10));
    recorder.end(has_data ? item(loss) : NAN);
    if (has_data) progress.step(step + 1, recorder.losses.back());
  }
}

Weights train_base(const Lesson& lesson, const Adaptation& a, const Loader& loader, ReportRow& row) {
  const LessonContext context(lesson);
  Transformer model(a.model);
  model.initialize(lesson.seed);
  StepRecorder recorder;
  train(model, "the base", loader, a.batch, a.base_steps, 3e-3, recorder);
  recorder.fill(row, a.batch * a.model.context);
  if (context.device.has_data()) row.extra = {{"on the base's text", held_out_loss(model, loader, a.batch)}};
  return weights_of(model);
}

std::unique_ptr<Transformer> adapted_model(const TransformerConfig& config, const Weights& base,
                                           const WayToAdapt& way, uint64_t seed) {
  TransformerConfig c = config;
  if (way.half) c.precision = uniform(DType::BF16);
  auto model = std::make_unique<Transformer>(c);
  auto values = base.begin();
  for (Parameter& p : model->parameters) p.assign(*values++);
  if (way.head_only)
    for (Parameter& p : model->parameters)
      model->parameters.set_trainable(p, p.name.starts_with("ln_f") || p.name.starts_with("lm_head"));
  if (way.pattern.empty()) return model;
  add_lora(
      *model, way.pattern,
      {.r = way.r, .alpha = 2.0 * double(way.r), .precision = way.half ? mixed(DType::BF16) : Precision{}},
      seed);
  if (way.in_4_bits) quantize_frozen(*model);
  return model;
}

Adapted adapt(const Lesson& lesson, const Adaptation& a, const Weights& base, const Loader& loader,
              const Loader& other, const WayToAdapt& way, const std::string& folder) {
  const LessonContext context(lesson);
  const auto model = adapted_model(a.model, base, way, lesson.seed);
  StepRecorder recorder;
  train(*model, way.name, loader, a.batch, a.steps, way.learning_rate, recorder);
  Adapted result{{},
                 recorder.losses,
                 model->parameters.numel_trainable(),
                 current().device.meter().now()[Kind::Gradient]};
  result.row.name = way.name;
  recorder.fill(result.row, a.batch * a.model.context);
  result.row.extra = {{"trainable", double(result.trainable)},
                      {"share, %", 100 * double(result.trainable) / double(model->parameters.numel())}};
  if (!folder.empty()) save_adapters(folder, *model);
  if (!context.device.has_data()) {
    result.row.ms_per_step = result.row.tokens_per_s = result.row.loss_first = result.row.loss_last =
        std::nullopt;
    return result;
  }
  result.row.loss_held_out = held_out_loss(*model, loader, a.batch);
  result.row.extra.emplace_back("on the base's text", held_out_loss(*model, other, a.batch));
  return result;
}

int64_t predicted_trainable(const TransformerConfig& c, const WayToAdapt& way) {
  if (way.head_only) return (c.vocab + 2) * c.channels;
  if (way.pattern.empty()) return c.parameter_count();
  const int64_t attention = 1 + 3;  // in + out, in channels; then c_proj and the MLP's two
  return c.layers * way.r * c.channels *
         (way.pattern == ".*" ? attention + (1 + 1) + (1 + 4) + (4 + 1) : attention);
}

void check_bytes(const TransformerConfig& c, const WayToAdapt& way, int64_t states, int64_t gradients,
                 Report& report) {
  const int64_t trainable = predicted_trainable(c, way);
  report.check_equal(way.name + ": bytes of states", states, 8 * trainable);
  report.check_equal(way.name + ": bytes of gradients", gradients, 4 * trainable);
}

void compare_losses(const std::vector<Adapted>& all, int64_t steps, Report& report) {
  const std::string skip = is_for_steps(kWholeRun, steps);
  const auto worse = [&](const std::string& name, const std::string& than) {
    std::optional<double> loss, other;
    for (const Adapted& a : all) {
      if (a.row.name == name) loss = a.row.loss_held_out;
      if (a.row.name == than) other = a.row.loss_held_out;
    }
    return loss.value() / other.value() - 1;
  };
  report.check_at_most("r 2, all layers: held-out loss, worse than all weights' by",
                       worse("r 2", "all weights"), 0.05, skip);
  report.check_at_most("4 bits: held-out loss, worse than bf16's by", worse("r 2, 4 bits", "r 2, bf16"), 0.03,
                       skip);
  report.check_at_least("head only: held-out loss, worse than all weights' by",
                        worse("head only", "all weights"), 0.2, skip);
}

void draw_losses(const std::vector<Adapted>& all, double floor, const std::string& path) {
  LinePlot plot{"Adapting a model to another grammar", "step", "nats a byte", {}, {{"floor", floor}}};
  for (size_t i = 0; i < all.size(); ++i) {
    if (ways_to_adapt()[i].half) continue;  // they lie on top of that in fp32
    const std::vector<double> losses = smooth(all[i].losses);
    std::vector<double> steps(losses.size());
    std::iota(steps.begin(), steps.end(), 1.0);
    plot.series.push_back({all[i].row.name, steps, losses});
  }
  write_file(path, draw(plot));
}

}  // namespace gradus
