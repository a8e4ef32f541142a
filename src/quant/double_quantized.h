// Weights in NF4 with double quantization (Dettmers et al. 2023, "QLoRA", sec. 3): codes of 4 bits, a scale
// for each 64 elements; and of the scales, less their mean, codes of 8 bits (the signed dynamic map), a scale
// for each 256. Bits an element: 4 + 8/64 + 32/(64*256) = 4.127.
#pragma once
#include "src/quant/quantized.h"

namespace gradus {

constexpr int64_t kWeightBlock = 64, kScaleBlock = 256;
constexpr int64_t kSpan = kWeightBlock * kScaleBlock;  // elements that a scale of the scales serves

struct DoubleQuantized {
  Shape shape;
  float mean = 0;  // of the scales
  Tensor codes, scale_codes, scale_scales;
  Tensor nf4, dynamic;  // the two books, shared by all that one quantizer has made
  int64_t bytes() const { return codes.bytes() + scale_codes.bytes() + scale_scales.bytes(); }
};

class DoubleQuantizer {
 public:
  explicit DoubleQuantizer(Device& device);
  // Of kind Weight, called by w's name. Asks the device for the scales. Errors as Quantizer::quantize.
  DoubleQuantized quantize(const Tensor& w) const;

 private:
  Quantizer nf4_, dynamic_;
};

// Elements [begin, end) in row-major order, as one row; begin is a multiple of kSpan. Kind Temporary, and
// beside it, while this runs, a scale for each 64 of them.
Tensor dequantize(const DoubleQuantized& q, int64_t begin, int64_t end, DType dtype);

}  // namespace gradus
