#include "src/quant/quantized.h"

#include <algorithm>
#include <cmath>

namespace gradus {

static Tensor book_on(Device& device, const QuantFormat& format) {
  Tensor book(device, {int64_t(sizeof(QuantBook))}, DType::U8, Kind::Other, format.name + " book");
  if (device.has_data()) device.copy_in(book.set().p, &format.book, sizeof(QuantBook));
  return book;
}

Quantizer::Quantizer(Device& device, const QuantFormat& format)
    : format_(format), book_(book_on(device, format)) {
  check(format.book.count <= 1 << format.bits, format.name, ": a book of ", format.book.count, " values for ",
        format.bits, " bits");
  const float least = *std::min_element(format.book.value, format.book.value + format.book.count);
  check(format.range != Range::ZeroPoint || least == 0, format.name,
        ": with a zero point a book begins with 0, not ", least);
  check(format.range != Range::Given || format.given > 0, format.name, ": the scale ", format.given,
        " is given; it must be above 0");
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
  Quantized q{.layout = {.n = x.numel(),
                         .block = format_.block > 0 ? format_.block : std::max<int64_t>(x.numel(), 1),
                         .bits = format_.bits,
                         .range = format_.range},
              .shape = x.shape(),
              .codes = {},
              .scales = {},
              .offsets = {}};
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
  be(x).quantize(ctx(x, cost::quantize(q.layout, x.dtype())), q.layout, book_.in(), x.in(), q.codes.set(),
                 q.scales.set(), q.offsets.defined() ? q.offsets.set() : Out{});
  if (device.has_data()) check_finite(q, name);
  return q;
}

Tensor Quantizer::dequantize(const Quantized& q, DType dtype) const {
  Tensor y = empty(q.codes, q.shape, dtype, "dequantized");
  be(y).dequantize(ctx(y, cost::dequantize(q.layout, dtype)), q.layout, book_.in(), q.codes.in(),
                   q.scales.in(), in_or_none(q.offsets), y.set());
  return y;
}

}  // namespace gradus
