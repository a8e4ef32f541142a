// AdamW with quantized states in any format, one operation after the other. AdamW8bit does this in one
// kernel.
#pragma once
#include "lessons/11_adam8bit/formats.h"
#include "src/optim/adamw_8bit.h"

namespace gradus {

// Tensors of fewer than AdamW8bit::kLeastCoded elements keep states in fp32. Not for loss scaling: a skipped
// update would requantize the states.
class QuantizedAdamW : public Optimizer {
 public:
  QuantizedAdamW(Parameters& parameters, const StateFormat& format, AdamWArgs args = {});

 private:
  void update(const std::vector<size_t>& of, ParamList) override;
  AdamWArgs args_;
  Quantizer m_, v_;
  std::vector<Quantized> m_codes_, v_codes_;  // by parameter; empty: its states stay in fp32
};

}  // namespace gradus
