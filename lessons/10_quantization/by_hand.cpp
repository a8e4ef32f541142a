#include "lessons/10_quantization/formats.h"
#include "src/core/table.h"
#include "src/tensor/context.h"

namespace gradus {

// A row of numbers with a name before it.
template <class T, class Text>
static void add_row(Table& table, const std::string& name, const std::vector<T>& values, Text text) {
  std::vector<std::string> cells{name};
  for (const T& v : values) cells.push_back(text(v));
  table.row(cells);
}

void quantization_by_hand(std::ostream& out) {
  Context context("cpu");
  const std::vector<float> x{0.3f, -1.3f, 0.75f, 2.4f, -0.1f, 0.2f};
  const Tensor tensor = from_host(context.device, x, {6}, DType::F32, Kind::Data, "x");
  const auto whole = [](int v) { return std::to_string(v); };
  const auto number = [](float v) { return number_text(double(v)); };
  Table table({"", "x1", "x2", "x3", "x4", "x5", "x6"});
  add_row(table, "x", x, number);
  for (const char* name : {"absmax", "zero point"}) {
    const Quantizer quantizer(context.device, format_of(name, x));
    const Quantized q = quantizer.quantize(tensor);
    add_row(table, std::string(name) + ": code", codes_of(q), whole);
    add_row(table, "comes back as", to_host<float>(quantizer.dequantize(q, DType::F32)), number);
  }
  const Quantizer nf4(context.device, format_of("NF4, blocks", x));
  const Quantized q = nf4.quantize(tensor);
  const std::vector<int> codes = codes_of(q);
  add_row(table, "NF4: code", codes, whole);
  add_row(table, "comes back as", to_host<float>(nf4.dequantize(q, DType::F32)), number);
  out << table << "\nThe first two codes of NF4 are one byte: 16 times " << codes[0] << ", and " << codes[1]
      << ", is " << to_host<int32_t>(q.codes)[0] << ".\n";
}

}  // namespace gradus
