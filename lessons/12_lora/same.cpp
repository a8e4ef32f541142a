#include "lessons/12_lora/same.h"

#include <cmath>
#include <iostream>

#include "src/core/table.h"
#include "src/data/dummy.h"
#include "src/optim/optimizer.h"

namespace gradus {

static std::vector<double> logits_of(const Transformer& model, const Tensor& ids) {
  const Evaluation evaluation;
  return to_host<double>(model.logits(ids));
}
static double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double v : x) most = std::max(most, std::abs(v));
  return most;
}
static double largest_gradient(const Transformer& model, const char* of) {
  double most = 0;
  for (const Parameter& p : model.parameters)
    if (p.trainable() && p.name.ends_with(of)) most = std::max(most, largest(to_host<double>(p.leaf.grad)));
  return most;
}
static double difference(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return largest(a) / largest(b);
}

void same_function(const TransformerConfig& config, const Weights& base, uint64_t seed, Report& report) {
  if (!current().device.has_data()) return;
  const DummyBatch batch = dummy_batch(config, 2, config.context);
  const auto plain = adapted_model(config, base, ways_to_adapt().at(0), seed);
  const std::vector<double> before = logits_of(*plain, batch.ids);
  const auto model = adapted_model(config, base, {.name = "r 2", .pattern = ".*", .r = 2}, seed);
  const bool unchanged = logits_of(*model, batch.ids) == before;
  AdamW optimizer(model->parameters);
  double of_a = NAN, of_b = NAN;
  for (int step = 0; step < 10; ++step) {
    Tape tape;
    const Tensor loss = batch.loss(*model);
    model->parameters.zero_grad();
    tape.backward(loss);
    if (step == 0)
      of_a = largest_gradient(*model, "lora_A.weight"), of_b = largest_gradient(*model, "lora_B.weight");
    optimizer.step(1e-2);
  }
  const std::vector<double> beside = logits_of(*model, batch.ids);
  merge_lora(*model);
  const std::vector<double> merged = logits_of(*model, batch.ids);
  Table table({"adapters of rank 2 on all layers", "largest"});
  table.row({"gradient of an A before the first step", number_text(of_a)});
  table.row({"gradient of a B", number_text(of_b)});
  table.row({"change of a logit by 10 steps, of the largest logit", number_text(difference(beside, before))});
  table.row({"and by then merging the adapters", number_text(difference(merged, beside))});
  std::cout << "\n(a) The same function\n\n" << table;
  report.check_equal("before the first step: logits are the base's", unchanged, true);
  report.check_at_most("before the first step: gradients of A", of_a, 0);
  report.check_equal("before the first step: some gradient of B is not 0", of_b > 0, true);
  report.check_at_most("merged: logits, off by", difference(merged, beside), 1e-5);
}

}  // namespace gradus
