#include "lessons/10_quantization/tables.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "src/core/table.h"

namespace gradus {

void check_nf4(double difference, int64_t bytes, int64_t numbers, Report& report) {
  report.check_at_most("NF4: published and computed values, largest difference", difference, 2e-7);
  report.check_equal("NF4: bytes of the quantized token embedding", bytes,
                     predicted_bytes(format_of("NF4, blocks"), numbers));
}

std::vector<FormatErrors> measure_errors(int64_t numbers, uint64_t seed, const std::vector<float>& weights) {
  const std::vector<float> normal = normal_numbers(numbers, seed);
  std::vector<float> outlier = normal;
  outlier[outlier.size() / 2] = 100;
  std::vector<FormatErrors> all;
  for (const std::string& name : format_names())
    all.push_back({name, measure(format_of(name, normal), normal), measure(format_of(name, outlier), outlier),
                   measure(format_of(name, weights), weights),
                   predicted_bytes(format_of(name, normal), numbers)});
  return all;
}

void error_table(const std::vector<FormatErrors>& all, int64_t numbers, size_t weights, Report& report) {
  Table table({"format", "bits per number", "codes used", "error, normal numbers", "error, with one outlier",
               "error, weights"});
  std::map<std::string, const FormatErrors*> of;
  for (const FormatErrors& e : all) {
    table.row({e.format, number_text(8 * double(e.normal.bytes) / double(numbers)),
               percent_text(e.normal.codes_used), percent_text(e.normal.error), percent_text(e.outlier.error),
               percent_text(e.weights.error)});
    report.check_equal(e.format + ": bytes of " + count_text(numbers) + " numbers", e.normal.bytes,
                       e.predicted);
    of[e.format] = &e;
  }
  std::cout << "\n(a) Quantization error, mean |x - x'| / mean |x|, of " << count_text(numbers)
            << " normal numbers and of " << count_text(int64_t(weights))
            << " trained weights; blocks of 64, dynamic: 256\n\n"
            << table;
  report.check_at_most("error with one outlier: absmax in blocks / absmax",
                       of.at("absmax, blocks")->outlier.error / of.at("absmax")->outlier.error, 0.1);
  report.check_at_most("error of normal numbers: NF4 / FP4, both in blocks",
                       of.at("NF4, blocks")->normal.error / of.at("FP4, blocks")->normal.error, 0.95);
}

void share_table(const std::vector<double>& shares, int64_t numbers, Report& report) {
  const auto [smallest, largest] = std::minmax_element(shares.begin(), shares.end());
  const auto percent = [](double share) { return number_text(std::round(1000 * share) / 10); };
  std::vector<std::string> codes{"code of NF4 in blocks"},
      cells{"share of " + count_text(numbers) + " normal numbers, %"};
  for (size_t code = 0; code < shares.size(); ++code)
    codes.push_back(std::to_string(code)), cells.push_back(percent(shares[code]));
  codes.insert(codes.end(), {"smallest share", "largest share"});
  cells.insert(cells.end(), {percent(*smallest), percent(*largest)});
  Table table(codes);
  table.row(cells);
  std::cout << "\n" << table;
  report.check_at_least("NF4, normal numbers: largest share of a code / smallest share", *largest / *smallest,
                        2);
}

void check_plain(double plain, double kernel, Report& report) {
  report.check_at_most("absmax, blocks: error in plain loops compared with the kernel's, relative difference",
                       std::abs(plain / kernel - 1), 1e-5);
}

void loss_table(const std::vector<Quality>& all, int64_t parameters, int64_t steps, Report& report) {
  Table table({"format", "weights", "bits per weight", "held-out loss", "increase over fp32"});
  std::map<std::string, double> increase;
  for (const Quality& q : all) {
    const double change = q.loss / all.front().loss - 1;
    increase[q.format] = change;
    table.row({q.format, bytes_text(q.bytes), number_text(8 * double(q.bytes) / double(parameters)),
               number_text(q.loss),
               percent_text(std::abs(change) < 5e-4 ? 0 : change)});  // 0.0 % without a sign
  }
  std::cout << "\n(b) The trained model with quantized matrices\n\n" << table;
  const std::string text = ": held-out loss, relative increase over fp32",
                    skip = is_for_steps(kWholeRun, steps);
  report.check_at_least("range of fp16" + text, increase.at("range of fp16"), 1, skip);
  for (const char* name : {"absmax, blocks", "dynamic, blocks"})
    report.check_at_most(std::string(name) + ": held-out loss, relative difference from fp32",
                         std::abs(increase.at(name)), 0.005, skip);
  report.check_at_most("NF4, blocks" + text, increase.at("NF4, blocks"), 0.15, skip);
  report.check_at_least("relative increase of the held-out loss: NF4 minus absmax of 8 bits, both in blocks",
                        increase.at("NF4, blocks") - increase.at("absmax, blocks"), 0, skip);
  report.check_at_least("relative increase of the held-out loss: FP4 minus NF4, both in blocks",
                        increase.at("FP4, blocks") - increase.at("NF4, blocks"), 0, skip);
}

}  // namespace gradus
