// Quantized tensors. A format says which codebook the codes use and how many elements share a scale.
#pragma once
#include <string>

#include "src/quant/codebook.h"
#include "src/tensor/tensor.h"

namespace gradus {

struct QuantFormat {
  std::string name;  // for messages and tables
  Codebook codebook;
  int bits = 8;       // per code: 8 or 4
  int64_t block = 0;  // elements that share a scale; 0: all elements of a tensor
  Range range = Range::AbsMax;
  float given = 0;  // Range::Given: the scale, which elements should not exceed
};

// The memory layout of n elements in a format.
QuantShape layout_of(const QuantFormat& format, int64_t n);

// A codebook in the device's memory, of kind Other.
Tensor codebook_on(Device& device, const Codebook& codebook, const std::string& name);

// x ~ offset + scale value[code] in each block of x, in row-major order.
struct Quantized {
  QuantShape layout;
  Shape shape;                    // of x
  Tensor codes, scales, offsets;  // uint8, fp32, fp32; offsets only for Range::ZeroPoint
  int64_t bytes() const { return codes.bytes() + scales.bytes() + (offsets.defined() ? offsets.bytes() : 0); }
};

// A format on a device.
class Quantizer {
 public:
  Quantizer(Device& device, const QuantFormat& format);

  // Coder::encode (kernels/cpu/codes.h; cuda: codes_kernel) finds the nearest value; pack
  // (kernels/cpu/quantize.cpp) puts two codes of 4 bits into a byte. Codes and scales are of kind Weight,
  // with names that begin with x's (on a device without data only their sizes are known). If an element is
  // not finite, an error names the first such block; for this the host waits for the device.
  Quantized quantize(const Tensor& x) const;
  // The same into q, which has the codes and scales of a tensor of x's size. The host does not wait: a block
  // with an element that is not finite gets an infinite scale.
  void requantize(const Tensor& x, Quantized& q) const;
  Tensor dequantize(const Quantized& q, DType dtype) const;  // kind Temporary

  const QuantFormat& format() const { return format_; }
  const Tensor& codebook() const { return codebook_; }

 private:
  QuantFormat format_;
  Tensor codebook_;
};

}  // namespace gradus
