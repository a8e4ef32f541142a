// What the tests of the code around cuBLAS and cuDNN share: attention_flash on packed q, k, v, forward and
// backward.
#pragma once
#include "kernels/cuda/attention_calls.h"
#include "tests/standin/turn.h"

namespace gradus {

inline AttentionShape packed(int64_t B, int64_t H, int64_t T, int64_t D, Mask mask) {
  const int64_t C = H * D;
  return {.B = B,
          .H = H,
          .T = T,
          .D = D,
          .qkv = {T * 3 * C, D, 3 * C},
          .y = {T * C, D, C},
          .scale = 1 / std::sqrt(float(D)),
          .mask = mask};
}

struct Numbers {
  std::vector<double> y, lse, dqkv;
};
inline Numbers attend(const Backend& k, DType t, const AttentionShape& s, const Buffer& x, const Buffer& dy) {
  const int64_t n = s.B * s.T * s.H * s.D, C = s.H * s.D * size_of(t);
  const DType stats = t == DType::F64 ? t : DType::F32;
  Buffer y = Buffer::zeros(t, n), lse = Buffer::zeros(stats, s.B * s.H * s.T), dx = Buffer::zeros(t, 3 * n);
  const auto in = [&](int64_t i) { return CBuf{x.in().as<char>() + i * C, t}; };
  const auto out = [&](int64_t i) { return Out{dx.out(Write::Set).as<char>() + i * C, t, Write::Set}; };
  TestCtx ctx(cost::attention_flash_bwd(s, t));
  k.attention_flash_fwd(ctx, s, in(0), in(1), in(2), y.out(Write::Set), lse.out(Write::Set));
  k.attention_flash_bwd(ctx, s, in(0), in(1), in(2), y.in(), lse.in(), dy.in(), out(0), out(1), out(2));
  return {y.values(), lse.values(), dx.values()};
}
inline Numbers attend(DType t, const AttentionShape& s) {
  const int64_t n = s.B * s.T * s.H * s.D;
  return attend(table(), t, s, Buffer::random(t, 3 * n, 1), Buffer::random(t, n, 2));
}

// The bounds are those of attention_test.cpp, where they are explained.
inline void expect_as_fp64(DType t, const AttentionShape& s) {
  const int64_t n = s.B * s.T * s.H * s.D;
  const Buffer x = Buffer::random(t, 3 * n, 1), dy = Buffer::random(t, n, 2);
  const Numbers got = attend(table(), t, s, x, dy);
  const Numbers exact =
      attend(cpu_backend(), DType::F64, s, Buffer(DType::F64, x.values()), Buffer(DType::F64, dy.values()));
  const double eps = 16 * epsilon_of(t) + 64 * double(s.D) * epsilon_of(DType::F32);
  const auto within = [](double bound) { return [=](int64_t) { return bound; }; };
  const std::string op = std::string("attention_flash ") + name_of(t) + " T " + std::to_string(s.T) + " D " +
                         std::to_string(s.D);
  expect_close(op + " lse", got.lse, exact.lse, within(eps));
  expect_close(op + " y", got.y, exact.y, within(4 * eps));
  expect_close(op + " dqkv", got.dqkv, exact.dqkv, within(32 * eps));
}

}  // namespace gradus
