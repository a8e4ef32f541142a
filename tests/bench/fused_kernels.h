// Timed kernels: fused kernels, each of which does the work of two others.
#pragma once
#include "tests/bench/kernel_data.h"

namespace gradus {

inline void add_fused(Data& d, Cases& cases) {
  const DType t = d.t;
  const Backend& k = d.k;
  const RowShape wide = d.rows_of(3072), norm = d.rows_of(768);
  cases.insert(cases.end(),
               {{"bias_gelu_fwd", text(wide), cost::bias_gelu_fwd(wide, t),
                 [&, wide](const Ctx& c) { k.bias_gelu_fwd(c, wide, d.x.in(), d.beta.in(), d.y.out()); }},
                {"bias_gelu_bwd", text(wide), cost::bias_gelu_bwd(wide, t),
                 [&, wide](const Ctx& c) {
                   k.bias_gelu_bwd(c, wide, d.x.in(), d.gamma.in(), d.y.in(), d.z.out(), d.beta.out());
                 }},
                {"add_layernorm_fwd", text(norm), cost::add_layernorm_fwd(norm, t),
                 [&, norm](const Ctx& c) {
                   k.add_layernorm_fwd(c, norm, d.x.in(), d.y.in(), d.gamma.in(), d.beta.in(), d.z.out(),
                                       d.u.out(), d.stats.out(), 1e-5f);
                 }},
                {"add_layernorm_bwd", text(norm), cost::add_layernorm_bwd(norm, t), [&, norm](const Ctx& c) {
                   const Out dgamma = d.beta.out(), dbeta = d.beta.out(norm.cols);
                   k.add_layernorm_bwd(c, norm, d.x.in(), d.gamma.in(), d.stats.in(), d.y.in(), d.u.in(),
                                       d.z.out(), dgamma, dbeta);
                 }}});
}

}  // namespace gradus
