// Timed kernels: those that Llama adds.
#pragma once
#include "tests/bench/kernel_data.h"

namespace gradus {

inline void add_llama(Data& d, Cases& cases) {
  const DType t = d.t;
  const Backend& k = d.k;
  const RowShape wide = d.rows_of(3072), norm = d.rows_of(768), gated{d.n / 6144, 3072};
  const int64_t T = std::min<int64_t>(wide.rows, 1024);
  const RotaryShape grouped{
      .B = wide.rows / T, .T = T, .H = 16, .KV = 4, .D = 128, .dims = 128, .base = 500'000};
  cases.insert(cases.end(),
               {{"rmsnorm_fwd", text(norm), cost::rmsnorm_fwd(norm, t),
                 [&, norm](const Ctx& c) {
                   k.rmsnorm_fwd(c, norm, d.x.in(), d.gamma.in(), d.y.out(), d.stats.out(), 1e-5f);
                 }},
                {"rmsnorm_bwd", text(norm), cost::rmsnorm_bwd(norm, t),
                 [&, norm](const Ctx& c) {
                   k.rmsnorm_bwd(c, norm, d.x.in(), d.gamma.in(), d.stats.in(), d.y.in(), d.z.out(),
                                 d.beta.out());
                 }},
                {"swiglu_fwd", text(gated), cost::swiglu_fwd(gated, t),
                 [&, gated](const Ctx& c) { k.swiglu_fwd(c, gated, d.x.in(), d.y.out()); }},
                {"swiglu_bwd", text(gated), cost::swiglu_bwd(gated, t),
                 [&, gated](const Ctx& c) { k.swiglu_bwd(c, gated, d.x.in(), d.y.in(), d.z.out()); }},
                {"rotary, grouped", text(wide), cost::rotary(grouped, t),
                 [&, grouped](const Ctx& c) { k.rotary(c, grouped, d.x.in(), d.y.out()); }}});
}

}  // namespace gradus
