#include "lessons/11_adam8bit/quantized_adamw.h"

#include "src/tensor/context.h"

namespace gradus {

static bool coded(const Parameter& p) { return p.value.numel() >= AdamW8bit::kLeastCoded; }

static Optimizer::States states_in(const StateFormat& format, const Parameter& p) {
  if (!coded(p)) return adamw_states(p);
  const auto scales = [&](const QuantFormat& f) { return Shape{layout_of(f, p.value.numel()).blocks()}; };
  return {{"m", p.value.shape(), DType::U8},
          {"v", p.value.shape(), DType::U8},
          {"m.scales", scales(format.m), DType::F32},
          {"v.scales", scales(format.v), DType::F32}};
}

QuantizedAdamW::QuantizedAdamW(Parameters& parameters, const StateFormat& format, AdamWArgs args)
    : Optimizer(parameters, [&](const Parameter& p) { return states_in(format, p); }),
      args_(args),
      m_(current().device, format.m),
      v_(current().device, format.v) {
  for (const State& s : states) {
    const Shape& shape = s.parameter->value.shape();
    const auto codes = [&](const QuantFormat& f, size_t i) -> Quantized {
      if (!coded(*s.parameter)) return {};
      return {layout_of(f, shape.numel()), shape, s.tensors[i], s.tensors[i + 2], {}};
    };
    m_codes_.push_back(codes(format.m, 0));
    v_codes_.push_back(codes(format.v, 1));
  }
}

void QuantizedAdamW::update(const Tensor& any, ParamList list) {
  for (size_t i = 0; i < states.size(); ++i) {
    ParamUpdate u = list.items[i];
    if (!coded(*states[i].parameter)) {
      adamw(any, {1, &u}, args_);
      continue;
    }
    // BEGIN SOLUTION 11.1
    Tensor m = m_.dequantize(m_codes_[i], DType::F32), v = v_.dequantize(v_codes_[i], DType::F32);
    u.m = m.set(), u.v = v.set();
    adamw(any, {1, &u}, args_);
    m_.requantize(m, m_codes_[i]);
    v_.requantize(v, v_codes_[i]);
    // STUB: todo("11.1", "codes to numbers, AdamW's update, numbers to codes", u, m_, v_, m_codes_[i], v_codes_[i], any, args_);
    // END SOLUTION 11.1
  }
}

}  // namespace gradus
