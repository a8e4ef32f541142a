// AdamW with its states in 8 bits.
#pragma once
#include "src/optim/optimizer.h"
#include "src/quant/quantized.h"

namespace gradus {

// Dettmers et al. 2022, "8-bit optimizers via block-wise quantization": m with the signed dynamic codebook, v
// with the unsigned one, rounded up (second_moment_codebook), one scale per 256 elements. State: 2 + 2 * 4 /
// 256 = 2.03125 bytes per parameter. A tensor of fewer than kLeastCoded elements has AdamW's states. Not for
// fp64.
class AdamW8bit : public Optimizer {
 public:
  static constexpr int64_t kLeastCoded = 4096;
  static bool is_for(const Parameter& p) {  // true: its states are codes
    return (p.shard ? p.shard->whole : p.value.shape()).numel() >= kLeastCoded;
  }
  explicit AdamW8bit(Parameters& parameters, AdamWArgs args = {},
                     const ParameterGroup& group = all_parameters);

 private:
  void update(const std::vector<size_t>& of, ParamList) override;
  AdamWArgs args_;
  Tensor m_codebook_, v_codebook_;
};

// m and v of p as codes of 8 bits, each with one scale per `block` elements; AdamW's states, if AdamW8bit is
// not for p.
Optimizer::States coded_states(const Parameter& p, int64_t block);

}  // namespace gradus
