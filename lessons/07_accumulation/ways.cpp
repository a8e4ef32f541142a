#include "lessons/07_accumulation/ways.h"

#include "src/train/formulas.h"

namespace gradus {

std::vector<Way> ways(int64_t batch) {
  std::vector<Way> all;
  for (const int64_t k : {1, 2, 4, 16})
    all.push_back({std::to_string(k) + " x " + std::to_string(batch / k), even_split(batch, k), false,
                   k == 1 || k == 4});
  all.push_back({"ragged, 1 x " + std::to_string(batch), {batch}, true, false});
  all.push_back({"ragged, 7 + 1 + 5 + 3", {7, 1, 5, 3}, true, false});
  return all;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return NAN;
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

double worst_distance(const Run& a, const Run& b) {
  if (a.first_gradient.empty() || a.first_gradient.size() != b.first_gradient.size()) return NAN;
  double worst = 0;
  for (size_t p = 0; p < a.first_gradient.size(); ++p) {
    const double of_parameter = distance(a.first_gradient[p], b.first_gradient[p]);
    if (std::isnan(of_parameter)) return of_parameter;
    worst = std::max(worst, of_parameter);
  }
  return worst;
}

int64_t predicted_bytes(const TransformerConfig& c, int64_t b) {
  return c.layers * saved_by_a_layer(c, b, c.context) + 4 * b * c.context * (2 * c.channels + c.vocab + 3);
}

int64_t predicted_flops(const TransformerConfig& c, int64_t B) {
  const int64_t T = c.context, C = c.channels, L = c.layers;
  return 6 * B * T * (12 * L * C * C + c.vocab * C) + 6 * B * L * C * T * (T + 1);
}

void check_way(const Way& way, const Run& run, const TransformerConfig& config, int64_t batch,
               const std::optional<Run>& whole, Report& report) {
  const int64_t largest = *std::max_element(way.split.begin(), way.split.end());
  report.check_equal(way.name + ": bytes saved for backward, largest micro-batch", run.last.saved_bytes,
                     predicted_bytes(config, largest));
  report.check_equal(way.name + ": FLOPs of the matrix products per step", run.flops,
                     predicted_flops(config, batch));
  if (way.split.size() == 1 || !whole) return;
  report.check_at_most(way.name + ": gradient, largest relative difference from the whole batch",
                       worst_distance(run, *whole), 1e-6);
  report.check_at_most(way.name + ": last loss, difference from the whole batch",
                       std::abs(run.last.loss - whole->last.loss), 1e-3);
}

}  // namespace gradus
