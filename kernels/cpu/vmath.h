// exp and tanh for kernels: straight-line C++ without branches or calls, so that compilers vectorize loops of
// them (they vectorize the library's only under fast-math). fp64, used by tests only, goes to the library.
// Bounds, tested over the whole range: exp 2 ulp (results below 2^-126: 1 ulp of a denormal), tanh 3 ulp.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace gradus::cpu {

inline double vexp(double x) { return std::exp(x); }
inline double vtanh(double x) { return std::tanh(x); }

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2; e^r = 1 + r + r^2 p(r), p interpolated at
// Chebyshev nodes.
inline float vexp(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693145752f, kLn2Low = 1.42860682e-6f;
  constexpr float kRound =
      12582912.0f;                // 1.5 · 2^23: adding it rounds to a whole number, kept in the low bits
  x = x < -104.0f ? -104.0f : x;  // below: 0; NaN passes both comparisons
  x = x > 89.0f ? 89.0f : x;      // above: infinity
  const float shifted = x * kLog2E + kRound, n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 0.001392692661f;
  p = p * r + 0.008363773874f;
  p = p * r + 0.04166655011f;
  p = p * r + 0.1666657338f;
  p = p * r + 0.5f;
  const float y = (p * (r * r) + r) + 1.0f;
  // 2^n in two factors, because n reaches from -150 to 128 and a single exponent field does not.
  const int32_t whole = int32_t(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound));
  const int32_t half = whole >> 1;
  const float scale1 = std::bit_cast<float>(uint32_t(half + 127) << 23);
  const float scale2 = std::bit_cast<float>(uint32_t(whole - half + 127) << 23);
  return y * scale1 * scale2;
}

// Small |x|: x (1 + x^2 p(x^2)), which keeps the relative error small; else 1 - 2 / (e^(2|x|) + 1) with the
// sign of x.
inline float vtanh(float x) {
  const float u = x * x, a = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFF);
  float p = 0.002292744816f;
  p = p * u - 0.008343945516f;
  p = p * u + 0.02176891865f;
  p = p * u - 0.05395925958f;
  p = p * u + 0.1333330356f;
  p = p * u - 0.3333333317f;
  const float small = x * (1.0f + u * p);
  const float large = 1.0f - 2.0f / (vexp(2.0f * a) + 1.0f);
  const uint32_t sign = std::bit_cast<uint32_t>(x) & 0x80000000;
  return a < 0.625f ? small : std::bit_cast<float>(std::bit_cast<uint32_t>(large) | sign);
}

}  // namespace gradus::cpu
