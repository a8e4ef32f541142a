#include "src/optim/adamw_8bit.h"

#include "src/tensor/context.h"

namespace gradus {

Optimizer::States coded_states(const Parameter& p, int64_t block) {
  if (!AdamW8bit::is_for(p)) return adamw_states(p);
  const Shape& shape = p.value.shape();
  const Shape scales{QuantShape{.n = shape.numel(), .block = block}.blocks()};
  return {{"m", shape, DType::U8},
          {"v", shape, DType::U8},
          {"m.scales", scales, DType::F32, block},
          {"v.scales", scales, DType::F32, block}};
}

AdamW8bit::AdamW8bit(Parameters& parameters, AdamWArgs args, const ParameterGroup& group)
    : Optimizer(
          parameters, [](const Parameter& p) { return coded_states(p, kStateBlock); }, group),
      args_(args),
      m_codebook_(codebook_on(current().device, dynamic_codebook(Sign::Signed), "signed dynamic")),
      v_codebook_(codebook_on(current().device, second_moment_codebook(), "second moments")) {}

void AdamW8bit::update(const std::vector<size_t>&, ParamList list) {
  std::vector<ParamUpdate> small, coded;
  for (int64_t i = 0; i < list.count; ++i)
    (list.items[i].m_scales.wanted() ? coded : small).push_back(list.items[i]);
  if (!small.empty()) adamw({int64_t(small.size()), small.data()}, args_);
  const ParamList large{int64_t(coded.size()), coded.data()};
  kernels().adamw_8bit(ctx(cost::adamw_8bit(large)), m_codebook_.in(), v_codebook_.in(), large, args_);
}

}  // namespace gradus
