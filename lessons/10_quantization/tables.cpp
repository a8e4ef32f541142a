#include "lessons/10_quantization/tables.h"

#include <cmath>
#include <iostream>
#include <map>

#include "src/core/table.h"

namespace gradus {

void check_nf4(double difference, int64_t bytes, int64_t numbers, Report& report) {
  report.check_at_most("NF4: published values beside quantiles made anew", difference, 2e-7);
  report.check_equal("NF4: bytes of the token embeddings", bytes,
                     predicted_bytes(format_of("NF4, blocks"), numbers));
}

std::vector<FormatDamage> measure_damage(int64_t numbers, uint64_t seed, const std::vector<float>& weights) {
  const std::vector<float> normal = normal_numbers(numbers, seed);
  std::vector<float> outlier = normal;
  outlier[outlier.size() / 2] = 100;
  std::vector<FormatDamage> all;
  for (const std::string& name : format_names())
    all.push_back({name, damage(format_of(name, normal), normal), damage(format_of(name, outlier), outlier),
                   damage(format_of(name, weights), weights),
                   predicted_bytes(format_of(name, normal), numbers)});
  return all;
}

void damage_table(const std::vector<FormatDamage>& all, int64_t numbers, size_t weights, Report& report) {
  Table table({"format", "bits a number", "codes used", "error, normal", "with an outlier", "of weights"});
  std::map<std::string, const FormatDamage*> of;
  for (const FormatDamage& d : all) {
    table.row({d.format, number_text(8 * double(d.normal.bytes) / double(numbers)),
               percent_text(d.normal.codes_used), percent_text(d.normal.error), percent_text(d.outlier.error),
               percent_text(d.weights.error)});
    report.check_equal(d.format + ": bytes of " + count_text(numbers) + " numbers", d.normal.bytes,
                       d.predicted);
    of[d.format] = &d;
  }
  std::cout << "\n(a) What comes back of " << numbers << " numbers, and of " << weights
            << " trained weights\n\n"
            << table;
  report.check_at_most("error with an outlier, blocks beside all in one",
                       of.at("absmax, blocks")->outlier.error / of.at("absmax")->outlier.error, 0.1);
  report.check_at_most("error of NF4 beside FP4, normal numbers",
                       of.at("NF4, blocks")->normal.error / of.at("FP4, blocks")->normal.error, 0.95);
}

void loss_table(const std::vector<Quality>& all, int64_t parameters, int64_t steps, Report& report) {
  Table table({"format", "weights", "bits a weight", "held out", "worse by"});
  std::map<std::string, double> worse;
  for (const Quality& q : all) {
    const double change = q.loss / all.front().loss - 1;
    worse[q.format] = change;
    table.row({q.format, bytes_text(q.bytes), number_text(8 * double(q.bytes) / double(parameters)),
               number_text(q.loss),
               percent_text(std::abs(change) < 5e-4 ? 0 : change)});  // no sign before 0.0 %
  }
  std::cout << "\n(b) The trained model, its matrices quantized\n\n" << table;
  const std::string text = ": held-out loss, worse than fp32's by", skip = is_for_steps(kWholeRun, steps);
  report.check_at_least("range of fp16" + text, worse.at("range of fp16"), 1, skip);
  for (const char* name : {"absmax, blocks", "dynamic, blocks"})
    report.check_at_most(std::string(name) + ": held-out loss / fp32's, off 1 by", std::abs(worse.at(name)),
                         0.005, skip);
  report.check_at_most("NF4, blocks" + text, worse.at("NF4, blocks"), 0.15, skip);
  report.check_at_least("NF4, blocks: held-out loss, worse than with 8 bits by",
                        worse.at("NF4, blocks") - worse.at("absmax, blocks"), 0, skip);
  report.check_at_least("FP4, blocks: held-out loss, worse than with NF4 by",
                        worse.at("FP4, blocks") - worse.at("NF4, blocks"), 0, skip);
}

}  // namespace gradus
