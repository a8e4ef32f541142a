// Weights in NF4 with double quantization (Dettmers et al. 2023, "QLoRA", sec. 3): codes of 4 bits with one
// scale per 64 elements; the scales minus their mean are stored as codes of 8 bits (signed dynamic codebook)
// with one scale per 256. Bits per element: 4 + 8/64 + 32/(64*256) = 4.127.
#pragma once
#include "src/quant/quantized.h"

namespace gradus {

constexpr int64_t kWeightBlock = 64, kScaleBlock = 256;
constexpr int64_t kSpan = kWeightBlock * kScaleBlock;  // elements per scale of the scales

struct DoubleQuantized {
  Shape shape;
  float mean = 0;  // of the scales
  Tensor codes, scale_codes, scale_scales;
  Tensor nf4, dynamic;  // the two codebooks, shared by all tensors of one quantizer
  int64_t bytes() const { return codes.bytes() + scale_codes.bytes() + scale_scales.bytes(); }
};

class DoubleQuantizer {
 public:
  explicit DoubleQuantizer(Device& device);
  // The tensors are of kind Weight, with names that begin with w's. The host waits for the scales. Errors: as
  // Quantizer::quantize.
  DoubleQuantized quantize(const Tensor& w) const;

 private:
  Quantizer nf4_, dynamic_;
};

// Dequantizes elements [begin, end) in row-major order to one row of kind Temporary; begin is a multiple of
// kSpan. While this runs, it also needs one scale per 64 of these elements.
Tensor dequantize(const DoubleQuantized& q, int64_t begin, int64_t end, DType dtype);

}  // namespace gradus
