#include "src/quant/double_quantized.h"
#include "src/tensor/call.h"

#include <numeric>

namespace gradus {

static QuantFormat nf4_format() {
  return {.name = "NF4", .codebook = nf4_codebook(), .bits = 4, .block = kWeightBlock};
}
static QuantFormat scale_format() {
  return {.name = "scales", .codebook = dynamic_codebook(Sign::Signed), .bits = 8, .block = kScaleBlock};
}

DoubleQuantizer::DoubleQuantizer(Device& device)
    : nf4_(device, nf4_format()), dynamic_(device, scale_format()) {}

DoubleQuantized DoubleQuantizer::quantize(const Tensor& w) const {
  check(w.numel() > 0, "quantize: ", w.storage().name(), " ", w.shape(), " has no elements");
  const Quantized q = nf4_.quantize(w);
  std::vector<float> scales = to_host<float>(q.scales);
  const float mean = float(std::accumulate(scales.begin(), scales.end(), 0.0) / double(scales.size()));
  for (float& s : scales) s -= mean;
  const Tensor centred =
      from_host(w.device(), scales, q.scales.shape(), DType::F32, Kind::Temporary, q.scales.storage().name());
  const Quantized s = dynamic_.quantize(centred);
  return {w.shape(), mean, q.codes, s.codes, s.scales, nf4_.codebook(), dynamic_.codebook()};
}

Tensor dequantize(const DoubleQuantized& q, int64_t begin, int64_t end, DType dtype) {
  check(begin % kSpan == 0, "dequantize: element ", begin, " is not the first of a span of ", kSpan);
  const QuantShape elements{.n = end - begin, .block = kWeightBlock, .bits = 4};
  const QuantShape scales{.n = elements.blocks(), .block = kScaleBlock};
  const int64_t first = begin / kWeightBlock;
  Tensor scale = empty(q.codes, {scales.n}, DType::F32, "scales");
  be(scale).fill(ctx(scale, cost::fill(scales.n, DType::F32)), scales.n, scale.set(), q.mean);
  be(scale).dequantize(ctx(scale, cost::dequantize(scales, DType::F32)), scales, q.dynamic.in(),
                       q.scale_codes.narrow(first, scales.n).in(),
                       q.scale_scales.narrow(first / kScaleBlock, scales.blocks()).in(), {}, scale.add());
  Tensor y = empty(q.codes, {elements.n}, dtype, "dequantized");
  be(y).dequantize(ctx(y, cost::dequantize(elements, dtype)), elements, q.nf4.in(),
                   q.codes.narrow(begin / 2, elements.code_bytes()).in(), scale.in(), {}, y.set());
  return y;
}

}  // namespace gradus
