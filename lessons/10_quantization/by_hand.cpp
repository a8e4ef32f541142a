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

  const Codebook codebook = absmax_codebook(8);
  const CodedBlock absmax = quantize_block(codebook, x);
  std::vector<float> dequantized;
  for (const uint8_t code : absmax.codes) dequantized.push_back(absmax.scale * codebook.value[code]);
  add_row(table, "absmax: code", absmax.codes, whole);
  add_row(table, "absmax: dequantized", dequantized, number);

  std::vector<Quantized> by_kernel;
  for (const char* name : {"zero point", "NF4, blocks"}) {
    const Quantizer quantizer(context.device, format_of(name, x));
    const Quantized& q = by_kernel.emplace_back(quantizer.quantize(tensor));
    const std::string label = std::string(name).substr(0, std::string(name).find(','));
    add_row(table, label + ": code", codes_of(q), whole);
    add_row(table, label + ": dequantized", to_host<float>(quantizer.dequantize(q, DType::F32)), number);
  }
  const auto first = [&](const Tensor& t) { return number(to_host<float>(t)[0]); };
  const std::vector<int> codes = codes_of(by_kernel[1]);
  out << table << "\nScales: absmax " << number(absmax.scale) << ", zero point " << first(by_kernel[0].scales)
      << " with the offset " << first(by_kernel[0].offsets) << ", NF4 " << first(by_kernel[1].scales)
      << "\nThe first two codes of NF4 share one byte: 16 x " << codes[0] << " + " << codes[1] << " = "
      << to_host<int32_t>(by_kernel[1].codes)[0] << "\n";
}

}  // namespace gradus
