#include "lessons/11_adam8bit/quantized_adamw.h"

#include "src/tensor/context.h"

namespace gradus {

QuantizedAdamW::QuantizedAdamW(Parameters& parameters, const StateFormat& format, AdamWArgs args)
    : Optimizer(
          parameters,
          [&](const Parameter& p) { return coded_states(p, layout_of(format.m, p.value.numel()).block); }),
      args_(args),
      m_(current().device, format.m),
      v_(current().device, format.v) {
  for (const State& s : states) {
    const Shape& shape = s.parameter->value.shape();
    const auto codes = [&](const QuantFormat& f, size_t i) -> Quantized {
      if (!AdamW8bit::is_for(*s.parameter)) return {};
      return {layout_of(f, shape.numel()), shape, s.tensors[i], s.tensors[i + 2], {}};
    };
    m_codes_.push_back(codes(format.m, 0));
    v_codes_.push_back(codes(format.v, 1));
  }
}

void QuantizedAdamW::update(const std::vector<size_t>& of, ParamList list) {
  for (size_t k = 0; k < of.size(); ++k) {
    const size_t i = of[k];
    ParamUpdate u = list.items[k];
    if (!AdamW8bit::is_for(*states[i].parameter)) {
      adamw({1, &u}, args_);
      continue;
    }
    // The technique: dequantize m and v, update m, v and the weight, requantize m and v.
    // BEGIN SOLUTION 11.2
    Tensor m = m_.dequantize(m_codes_[i], DType::F32), v = v_.dequantize(v_codes_[i], DType::F32);
    u.m = m.set(), u.v = v.set();
    adamw({1, &u}, args_);
    m_.requantize(m, m_codes_[i]);
    v_.requantize(v, v_codes_[i]);
    // STUB: todo("11.2", "dequantize m and v, AdamW's update, requantize m and v", u, m_, v_, m_codes_[i], v_codes_[i], args_);
    // END SOLUTION 11.2
  }
}

}  // namespace gradus
