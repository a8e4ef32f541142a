#include "lessons/11_adam8bit/states.h"

#include <cmath>
#include <iostream>

#include "src/core/table.h"
#include "src/tensor/context.h"

namespace gradus {

static std::vector<float> dequantized(const QuantFormat& format, const std::vector<float>& x) {
  Device& device = current().device;
  const Quantizer quantizer(device, format);
  const Tensor tensor = from_host(device, x, {int64_t(x.size())}, DType::F32, Kind::Data, "state");
  return to_host<float>(quantizer.dequantize(quantizer.quantize(tensor), DType::F32));
}

double adam_step(float m, float v) { return double(m) / (std::sqrt(double(v)) + 1e-8); }

StateErrors state_errors(const StateFormat& format, const Moments& moments) {
  double m_sum = 0, v_sum = 0, largest = 0, largest_back = 0, zeros = 0, positive = 0, doubled = 0, n = 0;
  StateErrors d;
  for (const auto& [m, v] : moments) {
    const std::vector<float> m_back = dequantized(format.m, m), v_back = dequantized(format.v, v);
    for (size_t i = 0; i < m.size(); ++i) {
      const double step = adam_step(m[i], v[i]), back = adam_step(m_back[i], v_back[i]);
      m_sum += std::abs(double(m[i])), d.m += std::abs(double(m[i]) - double(m_back[i]));
      v_sum += double(v[i]), d.v += std::abs(double(v[i]) - double(v_back[i]));
      doubled += std::abs(back) > 2 * std::abs(step), ++n;
      positive += v[i] > 0, zeros += v[i] > 0 && v_back[i] == 0;
      largest = std::max(largest, std::abs(step)), largest_back = std::max(largest_back, std::abs(back));
    }
  }
  return {d.m / m_sum, d.v / v_sum, zeros / positive, doubled / n, largest_back / largest};
}

std::map<std::string, StateErrors> error_table(const Moments& moments) {
  Table table({"states quantized as", "error of m", "error of v", "v underflows", "step more than doubled",
               "largest step / largest in fp32"});
  std::map<std::string, StateErrors> all;
  for (const StateFormat& format : state_formats()) {
    const StateErrors d = all[format.name] = state_errors(format, moments);
    table.row({format.name, percent_text(d.m), percent_text(d.v), percent_text(d.v_is_zero),
               percent_text(d.doubled), number_text(d.largest_step)});
  }
  std::cout << "\n(b) The states of the fp32 run, quantized: errors of m, of v and of the step m / (sqrt(v) "
               "+ eps)\n\n"
            << table;
  return all;
}

void check_errors(const std::map<std::string, StateErrors>& all, Report& report) {
  const auto zero = [&](const char* name) { return all.at(name).v_is_zero; };
  report.check_at_most("share of v that underflows, blocks: dynamic / linear",
                       zero("dynamic, blocks") / zero("linear, blocks"), 0.5);
  report.check_at_most("share of v that underflows, linear: blocks / tensor",
                       zero("linear, blocks") / zero("linear, tensor"), 0.5);
  report.check_at_most("share of v that underflows: dynamic, v rounded up", zero("dynamic, v rounded up"), 0);
}

}  // namespace gradus
