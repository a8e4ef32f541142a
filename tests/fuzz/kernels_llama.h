// The harness of the kernels: RMSNorm, SwiGLU and rotary positions.
#pragma once
#include "tests/fuzz/kernels_models.h"

namespace gradus::fuzz {

// |xhat| is at most sqrt(cols); rstd is at most `steep` and has the relative error of xhat.
inline Call rmsnorm(Draw& d) {
  const RowShape s = d.rows();
  const int64_t n = s.rows * s.cols;
  const Array x = d.array(d.t, n), gamma = d.array(d.t, s.cols);
  const Array stats = computed(d, DType::F32, s.rows, {}, [&](CallCtx& c, Out out) {
    cpu_backend().rmsnorm_fwd(c, s, x.in(), gamma.in(), {nullptr, d.t, Write::Set}, out, 1e-5f);
  });
  double steep = 1;
  for (const double rstd : stats.values()) steep = std::max(steep, rstd);
  const double rows = double(s.rows), xhat = std::sqrt(double(s.cols)) + 1,
               step = 2 * kEps * (double(s.cols) + 8);
  if (d.choices.yes())
    return {"rmsnorm_fwd",
            {},
            {x, gamma},
            {{d.t, n, step * 2 * xhat}, {DType::F32, s.rows, step * steep}},
            [s](const Backend& b, CallCtx& c, In in, Outs out) {
              b.rmsnorm_fwd(c, s, in[0], in[1], out[0], out[1], 1e-5f);
            }};
  return {"rmsnorm_bwd",
          cost::rmsnorm_bwd(s, d.t),
          {x, gamma, stats, d.array(d.t, n)},
          {{d.t, n, step * steep * 4 * (1 + xhat * xhat)},
           {d.t_or_fp32(), s.cols, 2 * kEps * rows * (rows + 4) * 2 * xhat}},
          [s](const Backend& b, CallCtx& c, In in, Outs out) {
            b.rmsnorm_bwd(c, s, in[0], in[1], in[2], in[3], out[0], out[1]);
          }};
}

// Fewer than 16 roundings of numbers of absolute value <= 8 on each device.
inline Call swiglu(Draw& d) {
  const RowShape s = d.rows();
  const int64_t n = s.rows * s.cols;
  constexpr double kError = 2 * 16 * 8 * kEps;
  const Array x = d.array(d.t, 2 * n);
  if (d.choices.yes())
    return {"swiglu_fwd", {}, {x}, {{d.t, n, kError}}, [s](const Backend& b, CallCtx& c, In in, Outs out) {
              b.swiglu_fwd(c, s, in[0], out[0]);
            }};
  return {"swiglu_bwd",
          {},
          {x, d.array(d.t, n)},
          {{d.t, 2 * n, kError}},
          [s](const Backend& b, CallCtx& c, In in, Outs out) { b.swiglu_bwd(c, s, in[0], in[1], out[0]); }};
}

inline Call rotary(Draw& d) {
  RotaryShape s{
      .B = d.pick(0, 2), .T = d.pick(1, 40), .H = 0, .KV = d.pick(1, 2), .D = d.pick(1, 40), .dims = 0};
  s.H = s.KV * d.pick(1, 3), s.dims = d.pick(0, s.D / 2) * 2, s.first = d.pick(0, 2000);
  s.base = d.choices.yes() ? kRotaryBase : 500'000, s.inverse = d.choices.yes();
  const int64_t n = s.B * s.T * (s.H + 2 * s.KV) * s.D;
  return {"rotary",
          cost::rotary(s, d.t),
          {d.array(d.t, n)},
          {{d.t, n, 3 * 4 * kEps}},
          [s](const Backend& b, CallCtx& c, In in, Outs out) { b.rotary(c, s, in[0], out[0]); }};
}

}  // namespace gradus::fuzz
