#include "src/quant/quantized.h"
#include "src/tensor/call.h"

#include <algorithm>
#include <cmath>

namespace gradus {

Tensor codebook_on(Device& device, const Codebook& codebook, const std::string& name) {
  Tensor there(device, {int64_t(sizeof(Codebook))}, DType::U8, Kind::Other, name + " codebook");
  if (device.has_data()) device.copy_in(there.set().p, &codebook, sizeof(Codebook));
  return there;
}

Quantizer::Quantizer(Device& device, const QuantFormat& format)
    : format_(format), codebook_(codebook_on(device, format.codebook, format.name)) {
  check(format.codebook.count <= 1 << format.bits, format.name, ": a codebook of ", format.codebook.count,
        " values for ", format.bits, " bits");
  const float least = *std::min_element(format.codebook.value, format.codebook.value + format.codebook.count);
  check(format.range != Range::ZeroPoint || least == 0, format.name,
        ": with a zero point a codebook must begin with 0, not ", least);
  check(format.range != Range::Given || format.given > 0, format.name, ": the scale ", format.given,
        " is given; it must be above 0");
}

QuantShape layout_of(const QuantFormat& format, int64_t n) {
  const int64_t whole = std::max<int64_t>(n, 1);
  return {
      .n = n, .block = format.block > 0 ? format.block : whole, .bits = format.bits, .range = format.range};
}

static void check_finite(const Quantized& q, const std::string& name) {
  const std::vector<float> scales = to_host<float>(q.scales);
  for (size_t b = 0; b < scales.size(); ++b)
    check(std::isfinite(scales[b]), "quantize: of ", name, " ", q.shape.text(), ", block ", b, " (elements ",
          q.layout.begin(int64_t(b)), " to ", q.layout.end(int64_t(b)) - 1,
          ") has a number that is not finite, or two too far apart for fp32; no code stands for it");
}

Quantized Quantizer::quantize(const Tensor& x) const {
  Device& device = x.device();
  Quantized q{
      .layout = layout_of(format_, x.numel()), .shape = x.shape(), .codes = {}, .scales = {}, .offsets = {}};
  const std::string name = x.storage().name();
  const auto make = [&](int64_t n, DType dtype, const char* what) {
    return Tensor(device, {n}, dtype, Kind::Weight, name + what);
  };
  q.codes = make(q.layout.code_bytes(), DType::U8, ".codes");
  q.scales = make(q.layout.blocks(), DType::F32, ".scales");
  if (format_.range == Range::ZeroPoint) q.offsets = make(q.layout.blocks(), DType::F32, ".offsets");
  if (format_.range == Range::Given)
    be(x).fill(ctx(x, cost::fill(q.layout.blocks(), DType::F32)), q.layout.blocks(), q.scales.set(),
               format_.given);
  requantize(x, q);
  if (device.has_data()) check_finite(q, name);
  return q;
}

void Quantizer::requantize(const Tensor& x, Quantized& q) const {
  check(x.numel() == q.layout.n, "quantize: ", x.shape(), " into the codes of ", q.shape);
  be(x).quantize(ctx(x, cost::quantize(q.layout, x.dtype())), q.layout, codebook_.in(), x.in(), q.codes.set(),
                 q.scales.set(), q.offsets.defined() ? q.offsets.set() : Out{});
}

Tensor Quantizer::dequantize(const Quantized& q, DType dtype) const {
  Tensor y = empty(q.codes, q.shape, dtype, "dequantized");
  be(y).dequantize(ctx(y, cost::dequantize(q.layout, dtype)), q.layout, codebook_.in(), q.codes.in(),
                   q.scales.in(), in_or_none(q.offsets), y.set());
  return y;
}

}  // namespace gradus
