// exp and tanh for kernels: straight-line C++ without branches or calls, so that compilers vectorize loops of
// them (they vectorize the library's only under fast-math). fp64, used by tests only, goes to the library.
// Bounds, tested over the whole range: exp 2 ulp (results below 2^-126: 1 ulp of a denormal), tanh 2 ulp.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace gradus::cpu {

inline double vexp(double x) { return std::exp(x); }
inline double vtanh(double x) { return std::tanh(x); }

// a b + c: in one instruction (and one rounding) where the machine has it.
inline float mul_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

// e^x = (2^k)^2 e^r with k = round(x / (2 ln 2)), |r| <= ln 2; e^r = 1 + r + r^2 p(r), p interpolated at
// Chebyshev nodes. The power of two is applied as two equal factors because 2k reaches from -150 to 128,
// which a single exponent field does not.
inline float vexp(float x) {
  constexpr float kPerStep = 0.7213475204f, kStepHigh = 1.38623046875f, kStepLow = 6.38923698906e-5f;
  constexpr float kRound = 12582912.0f;  // 1.5 · 2^23: adding it rounds to a whole number, in the low bits
  x = x < -104.0f ? -104.0f : x;         // below: 0; NaN passes both comparisons
  x = x > 89.0f ? 89.0f : x;             // above: infinity
  const float shifted = mul_add(x, kPerStep, kRound), k = shifted - kRound;
  const float r = mul_add(-k, kStepLow, mul_add(-k, kStepHigh, x));
  float p = 2.503439126e-5f;
  p = mul_add(p, r, 0.0002007428595f);
  p = mul_add(p, r, 0.001388832876f);
  p = mul_add(p, r, 0.008332772538f);
  p = mul_add(p, r, 0.04166667003f);
  p = mul_add(p, r, 0.1666667004f);
  p = mul_add(p, r, 0.5f);
  const float y = mul_add(p, r * r, r) + 1.0f;
  // k, in the low bits of `shifted`, becomes an exponent: the shift drops the bits of kRound.
  const float scale = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3F800000);
  return y * scale * scale;
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

}  // namespace gradus::cpu
