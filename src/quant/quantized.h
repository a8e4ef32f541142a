// Tensors as codes. A format says what the codes stand for and how many elements share a scale.
#pragma once
#include <string>

#include "src/quant/codebook.h"
#include "src/tensor/tensor.h"

namespace gradus {

struct QuantFormat {
  std::string name;  // for messages and tables
  Codebook codebook;
  int bits = 8;       // of a code: 8 or 4
  int64_t block = 0;  // elements that share a scale; 0: all of a tensor
  Range range = Range::AbsMax;
  float given = 0;  // Range::Given: the scale, which elements should not exceed
};

// How n elements in a format lie in memory.
QuantShape layout_of(const QuantFormat& format, int64_t n);

// A codebook in the device's memory, of kind Other.
Tensor codebook_on(Device& device, const Codebook& codebook, const std::string& name);

// x ~ offset + scale value[code], of each block of x in row-major order.
struct Quantized {
  QuantShape layout;
  Shape shape;                    // of x
  Tensor codes, scales, offsets;  // uint8, fp32, fp32; offsets for Range::ZeroPoint alone
  int64_t bytes() const { return codes.bytes() + scales.bytes() + (offsets.defined() ? offsets.bytes() : 0); }
};

// A format on a device.
class Quantizer {
 public:
  Quantizer(Device& device, const QuantFormat& format);

  // The nearest value is found by Coder::encode (kernels/cpu/codes.h; cuda: codes_kernel), two codes are made
  // a byte by pack (kernels/cpu/quantize.cpp). Codes and scales are of kind Weight and called by x's name (on
  // a device without data only their sizes are known). An error that names the first block with an element
  // that is not finite: this asks the device.
  Quantized quantize(const Tensor& x) const;
  // The same into q, which has codes and scales of a tensor of x's size. Asks the device nothing: a block
  // with an element that is not finite has an infinite scale.
  void requantize(const Tensor& x, Quantized& q) const;
  Tensor dequantize(const Quantized& q, DType dtype) const;  // kind Temporary

  const QuantFormat& format() const { return format_; }
  const Tensor& codebook() const { return codebook_; }

 private:
  QuantFormat format_;
  Tensor codebook_;
};

}  // namespace gradus
