#include "lessons/09_mixed_precision/underflow.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "lessons/07_accumulation/ways.h"
#include "lessons/09_mixed_precision/recipes.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/optim/optimizer.h"

namespace gradus {

static TransformerConfig with(Precision precision, TransformerConfig config) {
  config.precision = precision;
  return config;
}
// The same model with another precision, and the other's weights, rounded.
struct RoundedModel : Transformer {
  RoundedModel(Precision precision, const Transformer& trained)
      : Transformer(with(precision, trained.config)) {
    auto from = trained.parameters.begin();
    for (Parameter& p : parameters) copy_from_host(p.value, to_host<double>((from++)->value));
  }
};

static std::vector<double> numbers_of(const Parameters& parameters,
                                      const Tensor& (*tensor)(const Parameter&)) {
  std::vector<double> all;
  for (const Parameter& p : parameters)
    for (const double x : to_host<double>(tensor(p))) all.push_back(x);
  return all;
}
static int64_t changed_numbers(const std::vector<double>& before, const std::vector<double>& after) {
  int64_t changed = 0;
  for (size_t i = 0; i < before.size(); ++i) changed += after[i] != before[i];
  return changed;
}
static const Tensor& weight(const Parameter& p) { return p.value; }
static const Tensor& gradient(const Parameter& p) { return p.leaf.grad; }

std::vector<double> weight_gradients(const std::string& recipe, double scale, const Transformer& trained,
                                     const TextBatch& batch, int64_t micro_batches) {
  Context context(current().device.name(), current().seed);
  RoundedModel model(precision_recipe(recipe), trained);
  if (scale != 1) start_loss_scaling(context.device, float(scale));
  accumulate(model, batch, even_split(batch.sequences, micro_batches));
  std::vector<double> all = numbers_of(model.parameters, gradient);
  for (double& g : all) g /= scale;
  return all;
}

std::vector<double> logit_gradients(const std::string& recipe, double scale, const Transformer& trained,
                                    const TextBatch& micro, int64_t counted) {
  Context context(current().device.name(), current().seed);
  Device& device = context.device;
  RoundedModel model(precision_recipe(recipe), trained);
  const Tensor ids = on_device(micro.ids, micro.T, "inputs"),
               targets = on_device(micro.targets, micro.T, "targets"),
               count = from_host(device, std::vector<double>{double(counted)}, {}, DType::F32, Kind::Data,
                                 "count");
  Tensor logits = model.logits(ids);
  Leaf leaf;
  attach(logits, leaf, "logits");
  if (scale != 1) start_loss_scaling(device, float(scale));
  Tape tape;
  tape.backward(cross_entropy(logits, targets, count));
  std::vector<double> all = to_host<double>(leaf.grad);
  for (double& g : all) g /= scale;
  return all;
}

double share_lost(const std::vector<double>& exact, const std::vector<double>& g) {
  int64_t there = 0, lost = 0;
  // BEGIN SOLUTION 09.3
  for (size_t i = 0; i < exact.size(); ++i) {
    there += exact[i] != 0;
    lost += exact[i] != 0 && g[i] == 0;
  }
  // STUB: todo("09.3", "count the numbers that are there, and those of them that are lost", exact, g, there, lost);
  // END SOLUTION 09.3
  return double(lost) / double(there);
}

static double length(const std::vector<double>& g) {
  double squares = 0;
  for (const double x : g) squares += x * x;
  return std::sqrt(squares);
}

// Shares of numbers with each exponent: x is log2 of their size.
static Series histogram(const std::string& name, const std::vector<double>& g, Series::Marks marks) {
  constexpr int kFirst = -36, kLast = -12;
  std::vector<double> share(kLast - kFirst + 1);
  for (const double x : g)
    if (x != 0 && std::isfinite(x))
      share[size_t(std::clamp(std::ilogb(x), kFirst, kLast) - kFirst)] += 100 / double(g.size());
  Series series{name, {}, share, marks};
  for (int e = kFirst; e <= kLast; ++e) series.x.push_back(e);
  return series;
}

void underflow_table(const Transformer& trained, int64_t steps, const TextBatch& batch, int64_t micro_batches,
                     const std::string& picture, Report& report) {
  const TextBatch micro = batch.part(0, batch.sequences / micro_batches);
  const auto of_logits = [&](const std::string& recipe, double scale) {
    return logit_gradients(recipe, scale, trained, micro, batch.counted());
  };
  const auto of_weights = [&](const std::string& recipe, double scale) {
    return weight_gradients(recipe, scale, trained, batch, micro_batches);
  };
  const std::vector<double> logits = of_logits("fp32", 1), weights = of_weights("fp32", 1);
  Table table({"loss scale", "of the logits: became 0", "of the weights: length", "off by", "not finite"});
  LinePlot plot{"Gradients of the logits",
                "log2 of the size",
                "% of all",
                {histogram("fp32", logits, Series::Marks::Dots)},
                {}};
  std::vector<Underflow> scales;
  for (const double scale : {1.0, 0x1p8, 0x1p16, 0x1p24}) {
    const std::vector<double> l = of_logits("mixed-fp16", scale), w = of_weights("mixed-fp16", scale);
    scales.push_back({scale, share_lost(logits, l), distance(w, weights)});
    const auto bad = std::count_if(w.begin(), w.end(), [](double x) { return !std::isfinite(x); });
    table.row({number_text(scale), percent_text(scales.back().lost), number_text(length(w) / length(weights)),
               number_text(scales.back().off), std::to_string(bad)});
    if (scale == 1 || scale == 0x1p16)
      plot.series.push_back(histogram("fp16, loss scale " + number_text(scale), l, Series::Marks::Line));
  }
  std::cout << "\n(b) Gradients of a batch of " << batch.counted() << " tokens in fp16, beside fp32's\n\n"
            << table;
  write_file(picture, draw(plot));
  check_underflow(batch.counted(), steps, scales, report);
}

void check_underflow(int64_t targets, int64_t steps, const std::vector<Underflow>& scales, Report& report) {
  const std::string skip = targets < kLargeBatch ? "is for large batches" : needs_steps(20, steps);
  report.check_at_least("loss scale 1: gradients of logits that became 0", scales[0].lost, 0.1, skip);
  report.check_at_most("loss scale 65536: gradients of logits that became 0", scales[2].lost, 0.01, skip);
  report.check_at_most("loss scale 65536: gradients of weights, off by", scales[2].off, 0.02, skip);
}

std::vector<ScaledUpdate> scaled_updates(const Transformer& trained, const TextBatch& batch) {
  Context context(current().device.name(), current().seed);
  Device& device = context.device;
  RoundedModel model(precision_recipe("mixed-fp16"), trained);
  start_loss_scaling(device, 0x1p25f, 4);
  AdamW optimizer(model.parameters);
  std::vector<ScaledUpdate> updates;
  for (int step = 0; step < 12; ++step) {
    const std::vector<double> before = numbers_of(model.parameters, weight);
    context.end_attempt();  // the scale takes in what the step before has found
    const float scale = device.scalars().loss_scale;
    model.parameters.zero_grad();
    accumulate(model, batch, {batch.sequences});
    optimizer.clip_grad_norm(1.0);
    optimizer.step(1e-3);
    const int64_t changed = changed_numbers(before, numbers_of(model.parameters, weight));
    updates.push_back({scale, changed, int64_t(before.size()), optimizer.scalars().skip != 0});
  }
  return updates;
}

void scale_table(const std::vector<ScaledUpdate>& updates, int64_t steps, Report& report) {
  std::vector<std::string> header{"step"}, scales{"log2 of the scale"}, changes{"weights changed, %"};
  int64_t skipped = 0, changed_by_skipped = 0, made = 0;
  for (const ScaledUpdate& u : updates) {
    header.push_back(std::to_string(header.size() - 1));
    scales.push_back(std::to_string(std::ilogb(u.scale)));
    changes.push_back(number_text(std::round(100 * double(u.changed) / double(u.weights))));
    if (u.skipped)
      ++skipped, changed_by_skipped += u.changed;
    else
      made += u.changed > 0;
  }
  Table table(header);
  table.row(scales), table.row(changes);
  std::cout << "\n(c) A loss scale that begins too high, and is doubled after 4 updates in a row\n\n"
            << table;
  report.check_at_least("updates that were skipped", double(skipped), 1, needs_steps(20, steps));
  report.check_at_least("updates that changed weights", double(made), 1);
  report.check_equal("weights changed by updates that were skipped", changed_by_skipped, 0);
}

double share_unchanged(DType t, double learning_rate, const Transformer& trained, const TextBatch& batch) {
  Context context(current().device.name(), current().seed);
  RoundedModel model({t, DType::F32, DType::F32, false}, trained);
  const std::vector<double> before = numbers_of(model.parameters, weight);
  AdamW optimizer(model.parameters);
  accumulate(model, batch, {batch.sequences});
  optimizer.step(learning_rate);
  const std::vector<double> after = numbers_of(model.parameters, weight);
  return 1 - double(changed_numbers(before, after)) / double(before.size());
}

std::vector<Unchanged> unchanged_weights(const Transformer& trained, const TextBatch& batch) {
  std::vector<Unchanged> rates;
  for (const double rate : {1e-3, 1e-4, 1e-5}) {
    const auto share = [&](DType t) { return share_unchanged(t, rate, trained, batch); };
    rates.push_back({rate, share(DType::F32), share(DType::F16), share(DType::BF16)});
  }
  return rates;
}

void updates_table(const std::vector<Unchanged>& rates, Report& report) {
  Table table({"learning rate", "fp32", "fp16", "bf16"});
  for (const Unchanged& u : rates)
    table.row(
        {number_text(u.learning_rate), percent_text(u.fp32), percent_text(u.fp16), percent_text(u.bf16)});
  std::cout
      << "\n(d) Weights that one update by AdamW does not change, if there is no copy of them in fp32\n\n"
      << table;
  const Unchanged& least = rates.back();
  report.check_at_most("rate 1e-05, fp32: weights that stay as they are", least.fp32, 0.1);
  report.check_at_least("rate 1e-05, bf16: weights that stay as they are", least.bf16, 0.5);
}

}  // namespace gradus
