#include "lessons/11_adam8bit/states.h"
#include "src/core/table.h"
#include "src/tensor/context.h"

namespace gradus {

void adam8bit_by_hand(std::ostream& out) {
  Context context("cpu");
  const std::vector<float> v{0.04f, 0.0009f, 0.00004f, 0.000001f, 0.000000004f},
      m{0.1f, 0.02f, -0.004f, 0.0005f, 0.00003f};
  const Tensor state = from_host(context.device, v, {int64_t(v.size())}, DType::F32, Kind::Data, "v");
  Table table({"", "1", "2", "3", "4", "5"});
  const auto add = [&](const std::string& name, const std::vector<float>& numbers) {
    std::vector<std::string> cells{name};
    for (const float x : numbers) cells.push_back(number_text(double(x)));
    table.row(cells);
  };
  const auto steps = [&](const std::vector<float>& of_v) {
    std::vector<float> s;
    for (size_t i = 0; i < m.size(); ++i) s.push_back(float(adam_step(m[i], of_v[i])));
    return s;
  };
  add("m", m);
  add("v", v);
  add("step m / (sqrt(v) + 1e-8)", steps(v));
  for (const StateFormat& format : state_formats()) {
    if (format.v.block == 0) continue;
    const Quantizer quantizer(context.device, format.v);
    const Quantized q = quantizer.quantize(state);
    const std::vector<float> dequantized = to_host<float>(quantizer.dequantize(q, DType::F32));
    const std::vector<int32_t> codes = to_host<int32_t>(q.codes);
    const std::string name = format.name.substr(0, format.name.find(", blocks"));
    add(name + ": code of v", {codes.begin(), codes.end()});
    add(name + ": dequantized v", dequantized);
    add(name + ": step", steps(dequantized));
  }
  out << table;
}

}  // namespace gradus
