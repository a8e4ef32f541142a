#include "lessons/12_lora/same.h"

#include <cmath>
#include <iostream>

#include "src/core/table.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"

namespace gradus {

static Logits logits_of(const Transformer& model, const Tensor& ids) {
  const Evaluation evaluation;
  Meter& meter = current().device.meter();
  const int64_t before = meter.flops();
  const Tensor logits = model.logits(ids);
  return {to_host<double>(logits), meter.flops() - before};
}
static double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double v : x) {
    if (std::isnan(v)) return v;  // which std::max would pass over
    most = std::max(most, std::abs(v));
  }
  return most;
}
static double largest_gradient(const Transformer& model, const char* of) {
  std::vector<double> all;
  for (const Parameter& p : model.parameters) {
    if (!p.trainable() || !p.name.ends_with(of)) continue;
    const std::vector<double> gradient = to_host<double>(p.leaf.grad);
    all.insert(all.end(), gradient.begin(), gradient.end());
  }
  return largest(all);
}
// The largest difference, as a share of the largest of b.
static double difference(const Logits& a, const Logits& b) {
  std::vector<double> less = a.values;
  for (size_t i = 0; i < less.size(); ++i) less[i] -= b.values[i];
  return largest(less) / largest(b.values);
}

SameFunction measure_same_function(const TransformerConfig& config, const Weights& base, uint64_t seed) {
  const DummyBatch batch = dummy_batch(config, 2, config.context);
  SameFunction found;
  found.base = logits_of(*adapted_model(config, base, ways_to_adapt().at(0), seed), batch.ids);
  const auto model = adapted_model(config, base, {.name = "r 2", .pattern = ".*", .r = 2}, seed);
  found.adapted = logits_of(*model, batch.ids);
  AdamW optimizer(model->parameters);
  for (int step = 0; step < 10; ++step) {
    Tape tape;
    const Tensor loss = batch.loss(*model);
    model->parameters.zero_grad();
    tape.backward(loss);
    found.of_a.push_back(largest_gradient(*model, "lora_A.weight"));
    found.of_b.push_back(largest_gradient(*model, "lora_B.weight"));
    optimizer.step(1e-2);
  }
  found.trained = logits_of(*model, batch.ids);
  merge_lora(*model);
  found.merged = logits_of(*model, batch.ids);
  return found;
}

void same_function(const SameFunction& f, Report& report) {
  const double change = difference(f.trained, f.base), off = difference(f.merged, f.trained);
  Table table({"adapters of rank 2 on all layers", "largest"});
  table.row({"gradient of an A before the first step", number_text(f.of_a[0])});
  table.row({"gradient of a B", number_text(f.of_b[0])});
  table.row({"change of a logit by 10 steps, of the largest logit", number_text(change)});
  table.row({"and by then merging the adapters", number_text(off)});
  std::cout << "\n(a) The same function\n\n" << table;
  report.check_equal("before the first step: logits are the base's", f.adapted.values == f.base.values, true);
  report.check_at_most("before the first step: gradients of A", f.of_a[0], 0);
  report.check_equal("before the first step: some gradient of B is not 0", f.of_b[0] > 0, true);
  report.check_equal("before the second step: some gradient of A is not 0", f.of_a[1] > 0, true);
  report.check_at_least("after 10 steps: largest change of a logit / largest logit", change, 0.01);
  report.check_at_most("merged: logits, off by", off, 1e-5);
  report.check_equal("merged: FLOP of a forward pass, as the base's", f.merged.flops, f.base.flops);
  report.check_at_least("not merged: more FLOP of a forward pass, by", double(f.trained.flops - f.base.flops),
                        1);
}

}  // namespace gradus
