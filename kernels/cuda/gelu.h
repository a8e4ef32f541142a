// The two forms of gelu and their derivatives. The last product is never contracted to an fma with the next
// operation of a chain.
#pragma once
#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

// s = 1 / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): gelu(x) = x s.
inline __device__ float gelu_s(float x) {
  const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
  return 1.0f / (1.0f + expf(-2.0f * u));
}
struct GeluFwd {
  __device__ float operator()(float x) const { return __fmul_rn(x, gelu_s(x)); }
};
// dy (s + x 2 s (1 - s) du/dx)
struct GeluBwd {
  __device__ float operator()(float x, float dy) const {
    const float s = gelu_s(x), du = 0.7978845608f * (1.0f + 3 * 0.044715f * x * x);
    return __fmul_rn(dy, s + x * 2 * s * (1 - s) * du);
  }
};

// gelu_erf
inline __device__ float normal_cdf(float x) { return 0.5f + 0.5f * erff(0.7071067812f * x); }
struct GeluErfFwd {
  __device__ float operator()(float x) const { return __fmul_rn(x, normal_cdf(x)); }
};
// dy (Phi(x) + x e^(-x^2/2) / sqrt(2 pi))
struct GeluErfBwd {
  __device__ float operator()(float x, float dy) const {
    return __fmul_rn(dy, normal_cdf(x) + x * 0.3989422804f * expf(-0.5f * x * x));
  }
};

}  // namespace gradus::GRADUS_GPU
