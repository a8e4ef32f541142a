#include "lessons/10_quantization/formats.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "src/core/rng.h"
#include "src/tensor/context.h"

namespace gradus {

const std::vector<std::string>& format_names() {
  static const std::vector<std::string> names{
      "range of fp16",  "absmax",          "zero point",     "quantile",
      "absmax, blocks", "dynamic, blocks", "absmax, 4 bits", "absmax, 4 bits, blocks",
      "FP4, blocks",    "NF4, blocks"};
  return names;
}

std::vector<float> divided_by_absmax(std::vector<float> x) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::abs(v));
  for (float& v : x) v /= most > 0 ? most : 1;
  return x;
}

static Codebook codebook_of(const std::string& name, int bits, const std::vector<float>& x) {
  if (name == "zero point") return zero_point_codebook(bits);
  if (name == "quantile") return quantile_codebook(divided_by_absmax(x), bits);
  if (name == "dynamic, blocks") return dynamic_codebook(Sign::Signed);
  if (name == "FP4, blocks") return fp4_codebook();
  if (name == "NF4, blocks") return nf4_codebook();
  return absmax_codebook(bits);
}

QuantFormat format_of(const std::string& name, const std::vector<float>& x) {
  const auto& names = format_names();
  check(std::find(names.begin(), names.end(), name) != names.end(), "there is no format '", name, "'");
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  const int bits = has("4") ? 4 : 8;
  QuantFormat f{.name = name, .codebook = codebook_of(name, bits, x), .bits = bits};
  if (has("blocks")) f.block = name == "dynamic, blocks" ? 256 : 64;
  if (name == "range of fp16") f.range = Range::Given, f.given = 65504;
  if (name == "zero point") f.range = Range::ZeroPoint;
  return f;
}

CodedBlock quantize_block(const Codebook& codebook, const std::vector<float>& x) {
  CodedBlock block;
  // BEGIN SOLUTION 10.3
  for (const float v : x) block.scale = std::max(block.scale, std::abs(v));
  for (const float v : x) {
    const float t = block.scale > 0 ? v / block.scale : 0;
    int nearest = 0;
    for (int c = 1; c < codebook.count; ++c)
      if (std::abs(codebook.value[c] - t) < std::abs(codebook.value[nearest] - t)) nearest = c;
    block.codes.push_back(uint8_t(nearest));
  }
  // STUB: todo("10.3", "the scale of the block, then the nearest code of each number", codebook, x, block);
  // END SOLUTION 10.3
  return block;
}

double bits_per_number(int bits, int64_t block, int constants) {
  double sum = 0;
  // BEGIN SOLUTION 10.1
  sum = bits + 32.0 * constants / double(block);
  // STUB: todo("10.1", "the bits of the code and of a share of the constants", bits, block, constants, sum);
  // END SOLUTION 10.1
  return sum;
}

int64_t predicted_bytes(const QuantFormat& f, int64_t n) {
  const int64_t block = f.block > 0 ? f.block : n;
  const double bits = double(n) * bits_per_number(f.bits, block, f.range == Range::ZeroPoint ? 2 : 1);
  return int64_t(std::llround(bits / 8));
}

double nf4_difference(const std::vector<float>& computed) {
  const Codebook published = nf4_codebook();
  if (int(computed.size()) != published.count) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < computed.size(); ++i) {
    const double difference = std::abs(double(computed[i]) - double(published.value[i]));
    if (std::isnan(difference)) return difference;  // std::max would ignore NaN
    most = std::max(most, difference);
  }
  return most;
}

std::vector<int> codes_of(const Quantized& q) {
  std::vector<int> codes;
  for (const int32_t byte : to_host<int32_t>(q.codes))
    if (q.layout.bits == 8)
      codes.push_back(byte);
    else
      codes.insert(codes.end(), {byte >> 4, byte & 15});
  codes.resize(size_t(q.layout.n));
  return codes;
}

static double mean_magnitude(const std::vector<float>& x, const std::vector<float>& minus = {}) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i)
    sum += std::abs(double(x[i]) - (minus.empty() ? 0 : double(minus[i])));
  return sum / double(x.size());
}
static double relative_error(const std::vector<float>& x, const std::vector<float>& dequantized) {
  return mean_magnitude(x, dequantized) / mean_magnitude(x);
}

double plain_error(const QuantFormat& format, const std::vector<float>& x) {
  std::vector<float> dequantized;
  for (auto at = x.begin(); at != x.end();) {
    const auto end = at + std::min<int64_t>(format.block, x.end() - at);
    const CodedBlock block = quantize_block(format.codebook, {at, end});
    for (const uint8_t code : block.codes) dequantized.push_back(block.scale * format.codebook.value[code]);
    at = end;
  }
  return relative_error(x, dequantized);
}

static Quantized quantized(const Quantizer& quantizer, const std::vector<float>& x) {
  return quantizer.quantize(
      from_host(current().device, x, {int64_t(x.size())}, DType::F32, Kind::Data, "numbers"));
}

std::vector<double> code_shares(const QuantFormat& format, const std::vector<float>& x) {
  std::vector<double> shares(size_t(format.codebook.count), 0.0);
  for (const int code : codes_of(quantized(Quantizer(current().device, format), x)))
    shares[size_t(code)] += 1 / double(x.size());
  return shares;
}

Measured measure(const QuantFormat& format, const std::vector<float>& x) {
  const Quantizer quantizer(current().device, format);
  const Quantized q = quantized(quantizer, x);
  const std::vector<int> codes = codes_of(q);
  const std::set<int> used(codes.begin(), codes.end());
  return {relative_error(x, to_host<float>(quantizer.dequantize(q, DType::F32))),
          double(used.size()) / format.codebook.count, q.bytes()};
}

std::vector<float> normal_numbers(int64_t n, uint64_t seed) {
  Rng rng(seed, 10);
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(float(rng.normal()));
  return x;
}

}  // namespace gradus
