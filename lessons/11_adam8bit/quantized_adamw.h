// AdamW with quantized states, step by step: what AdamW8bit does in one pass, for any format.
#pragma once
#include "lessons/11_adam8bit/formats.h"
#include "src/optim/adamw_8bit.h"

namespace gradus {

// Tensors of fewer than AdamW8bit::kLeastCoded elements keep fp32. Without loss scaling: a skipped update
// would quantize the states once more.
class QuantizedAdamW : public Optimizer {
 public:
  QuantizedAdamW(Parameters& parameters, const StateFormat& format, AdamWArgs args = {});

 private:
  void update(const std::vector<size_t>& of, ParamList) override;
  AdamWArgs args_;
  Quantizer m_, v_;
  std::vector<Quantized> m_codes_, v_codes_;  // by parameter; without codes: it keeps fp32
};

}  // namespace gradus
