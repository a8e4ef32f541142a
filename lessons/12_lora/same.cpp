#include "lessons/12_lora/same.h"

#include <cmath>
#include <iostream>

#include "src/core/table.h"
#include "src/tensor/context.h"

namespace gradus {

Logits logits_of(const Transformer& model, const Tensor& ids) {
  const Evaluation evaluation;
  Meter& meter = current().device.meter();
  const int64_t before = meter.flops();
  const Tensor logits = model.logits(ids);
  return {to_host<double>(logits), meter.flops() - before};
}

static double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double v : x) {
    if (std::isnan(v)) return v;  // std::max would pass over it
    most = std::max(most, std::abs(v));
  }
  return most;
}

double largest_gradient(const Transformer& model, const char* name_end) {
  std::vector<double> all;
  for (const Parameter& p : model.parameters) {
    if (!p.trainable() || !p.name.ends_with(name_end)) continue;
    const std::vector<double> gradient = to_host<double>(p.leaf.grad);
    all.insert(all.end(), gradient.begin(), gradient.end());
  }
  return largest(all);
}

// The largest difference, relative to the largest logit of b.
static double difference(const Logits& a, const Logits& b) {
  std::vector<double> less = a.values;
  for (size_t i = 0; i < less.size(); ++i) less[i] -= b.values[i];
  return largest(less) / largest(b.values);
}

void same_function(const SameFunction& f, Report& report) {
  const double by_steps = difference(f.trained, f.base), by_merge = difference(f.merged, f.trained);
  Table table({"LoRA of rank 2 on all layers", "value"});
  table.row({"gradient of A, first step: largest element", number_text(f.of_a[0])});
  table.row({"gradient of B, first step: largest element", number_text(f.of_b[0])});
  table.row({"gradient of A, tenth step: largest element", number_text(f.of_a[1])});
  table.row(
      {"change of the logits by 10 steps: largest, relative to the largest logit", number_text(by_steps)});
  table.row(
      {"change of the logits by the merge: largest, relative to the largest logit", number_text(by_merge)});
  table.row({"FLOPs of a forward pass with adapters / base model",
             number_text(double(f.trained.flops) / double(f.base.flops))});
  std::cout << "\n(a) Adapters are added, trained and merged\n\n" << table;
  int64_t differ = 0;
  for (size_t i = 0; i < f.base.values.size(); ++i) differ += f.adapted.values[i] != f.base.values[i];
  report.check_equal("(a) logits of new adapters that differ bitwise from the base model's", differ, 0);
  report.check_at_most("(a) gradient of A, first step: largest element", f.of_a[0], 0);
  report.check_at_least("(a) gradient of B, first step: largest element", f.of_b[0], 1e-9);
  report.check_at_least("(a) gradient of A, tenth step: largest element", f.of_a[1], 1e-9);
  report.check_at_least("(a) change of the logits by 10 steps: largest, relative", by_steps, 0.01);
  report.check_at_most("(a) change of the logits by the merge: largest, relative", by_merge, 1e-5);
  report.check_equal("(a) FLOPs of a forward pass, merged and base model", f.merged.flops, f.base.flops);
  report.check_at_least("(a) additional FLOPs of a forward pass, not merged",
                        double(f.trained.flops - f.base.flops), 1);
}

}  // namespace gradus
