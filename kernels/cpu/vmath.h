// exp, tanh and erf for kernels: straight-line C++ without branches or calls, so that compilers vectorize
// loops of them (they vectorize the library's functions only under fast-math). fp64, which only tests use,
// calls the library. Bounds: exp, tanh and erf 2 ulp, but exp(x) is 0 for x below -86.9 (exact: below 2e-38).
// Over all fp32 numbers the largest errors are 1.20, 1.33 and 1.26 ulp (tests/bench/ulps.cpp).
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace gradus::cpu {

inline double vexp(double x) { return std::exp(x); }
inline double vtanh(double x) { return std::tanh(x); }
inline double verf(double x) { return std::erf(x); }

// a b + c: in one instruction (and with one rounding) if the machine has it.
inline double mul_add(double a, double b, double c) { return a * b + c; }
inline float mul_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2; e^r = 1 + r + r^2 p(r), p interpolated at
// Chebyshev nodes.
inline float vexp(float x) {
  constexpr float kPerLn2 = 1.44269504f, kLn2High = 0.693145752f, kLn2Low = 1.42860682e-6f;
  constexpr float kRound = 12582912.0f;         // 1.5 · 2^23: adding it rounds to a whole number
  const float at_most = x > 89.0f ? 89.0f : x;  // e^89 is infinity; NaN passes the comparison
  const float shifted = mul_add(at_most, kPerLn2, kRound), n = shifted - kRound;
  const float r = mul_add(-n, kLn2Low, mul_add(-n, kLn2High, at_most));
  float p = 0.001392618359f;
  p = mul_add(p, r, 0.008363179053f);
  p = mul_add(p, r, 0.04166655462f);
  p = mul_add(p, r, 0.1666657699f);
  p = mul_add(p, r, 0.5f);
  // n is in the low bits of `shifted`. Moved up to the exponent and added to 126, it gives 2^(n-1); not 2^n,
  // because n may be 128, one more than an exponent field holds.
  const float half = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + (uint32_t(126) << 23));
  const float half_exp = mul_add(mul_add(p, r * r, r), half, half);
  return x < -86.9f ? 0.0f : half_exp + half_exp;
}

// Small |x|: x (1 + x^2 p(x^2)), which keeps the relative error small; else 1 - 2 / (e^(2|x|) + 1) with the
// sign of x.
inline float vtanh(float x) {
  const float a = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFF), u = a * a;
  float p = 0.002292744816f;
  p = mul_add(p, u, -0.008343945516f);
  p = mul_add(p, u, 0.02176891865f);
  p = mul_add(p, u, -0.05395925958f);
  p = mul_add(p, u, 0.1333330356f);
  p = mul_add(p, u, -0.3333333317f);
  const float small = mul_add(a * u, p, a);
  const float large = 1.0f - 2.0f / (vexp(2.0f * a) + 1.0f);
  const uint32_t sign = std::bit_cast<uint32_t>(x) & 0x80000000;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(a < 0.625f ? small : large) | sign);
}

// Small |x|: x (1 + p(x^2)); else 1 - e^(-|x| q(|x|)) with the sign of x, which from 4 on is 1. p is erf(x)/x
// - 1 and q is -log(erfc(x))/x, interpolated at Chebyshev nodes.
inline float verf(float x) {
  const float a = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFF), u = a * a;
  float p = -0.0006214585362f;
  p = mul_add(p, u, 0.005034370663f);
  p = mul_add(p, u, -0.02679294778f);
  p = mul_add(p, u, 0.112824966f);
  p = mul_add(p, u, -0.3761255451f);
  p = mul_add(p, u, 0.1283791581f);
  const float small = mul_add(a, p, a), at_most = a > 4.0f ? 4.0f : a;  // NaN passes the comparison
  float q = 1.664439783e-05f;
  q = mul_add(q, at_most, -0.0003742840717f);
  q = mul_add(q, at_most, 0.003836658468f);
  q = mul_add(q, at_most, -0.02413201871f);
  q = mul_add(q, at_most, 0.1066101804f);
  q = mul_add(q, at_most, 0.6349632642f);
  q = mul_add(q, at_most, 1.128685141f);
  const float large = 1.0f - vexp(-at_most * q);
  const uint32_t sign = std::bit_cast<uint32_t>(x) & 0x80000000;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(a < 0.875f ? small : large) | sign);
}

}  // namespace gradus::cpu
