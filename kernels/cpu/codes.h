// Codes of elements that share a scale, one per byte, and the dequantized elements (values_packed in
// quantize.cpp does that for 4-bit codes).
#pragma once
#include "kernels/cpu/lookup.h"

namespace gradus::cpu {

constexpr int64_t kChunkOfCodes = 4096;  // the most elements of a call below

// Prefetches n numbers: by itself the processor prefetches only up to the end of a page.
template <bool kToWrite = false, class T>
void fetch(int64_t n, const T* x) {
  for (int64_t i = 0; i < n; i += 64 / int64_t(sizeof(T))) __builtin_prefetch(x + i, kToWrite);
}

[[gnu::flatten, gnu::noinline]] inline uint32_t magnitude(int64_t n, const float* x) {
  uint32_t most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF);
  return most;
}

[[gnu::flatten, gnu::noinline]] inline void codes_evenly(int64_t n, const float* x, Normalize place,
                                                         float per_step, float zero, float last,
                                                         uint8_t* codes) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) codes[i] = nearest_evenly(place(x[i]), per_step, zero, last);
}
[[gnu::flatten, gnu::noinline]] inline void dynamic_starts(int64_t n, const float* x, Normalize place,
                                                           float first_decade, uint8_t* codes) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) codes[i] = dynamic_start(place(x[i]), first_decade);
}
[[gnu::flatten, gnu::noinline]] inline void step_above(int64_t n, const float* x, Normalize place,
                                                       const float* boundary, uint8_t* codes) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) codes[i] = uint8_t(codes[i] + (place(x[i]) > boundary[i]));
}
// For at most 16 values: the place of the nearest value in ascending order is the number of boundaries below.
[[gnu::flatten, gnu::noinline]] inline void count_boundaries(int64_t n, const float* x, Normalize place,
                                                             std::array<float, 15> boundary, uint8_t* codes) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    int32_t below = 0;
#pragma GCC unroll 15
    for (const float b : boundary) below += place(x[i]) > b;
    codes[i] = uint8_t(below);
  }
}
[[gnu::flatten, gnu::noinline]] inline void values_evenly(int64_t n, const uint8_t* codes, float step,
                                                          float zero, float scale, float offset, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = offset + scale * ((float(codes[i]) - zero) * step);
}

// Finds the codes of elements and the values of codes, in a codebook.
struct Coder {
  explicit Coder(const Codebook& codebook)
      : codebook(codebook), value(codebook.value), boundary(codebook.boundary) {}
  const Codebook& codebook;
  Table value, boundary;

  // codes[i] = nearest_code(codebook, place(x[i])), for n elements, at most kChunkOfCodes.
  void encode(int64_t n, const float* x, Normalize place, uint8_t* codes) const {
    if (codebook.step > 0)
      return codes_evenly(n, x, place, codebook.per_step, codebook.zero, float(codebook.count - 1), codes);
    if (codebook.first_decade > 0) {
      const int64_t done = dynamic_codes(n, x, place, codebook.first_decade, boundary, codes);
      n -= done, x += done, codes += done;
      alignas(64) float above[kChunkOfCodes];
      dynamic_starts(n, x, place, codebook.first_decade, codes);
      boundary.look_up(n, codes, 1, 0, above);
      return step_above(n, x, place, above, codes);
    }
    if (codebook.count > 16)
      for (int64_t i = 0; i < n; ++i) codes[i] = nearest_code(codebook, place(x[i]));
    else {
      std::array<float, 15> boundaries;
      std::copy_n(codebook.boundary, 15, boundaries.begin());
      count_boundaries(n, x, place, boundaries, codes);
      for (int64_t i = 0; i < n; ++i) codes[i] = codebook.code[codes[i]];
    }
  }
  // y[i] = offset + scale value[codes[i]]
  void decode(int64_t n, const uint8_t* codes, float scale, float offset, float* y) const {
    if (codebook.step > 0)
      values_evenly(n, codes, codebook.step, codebook.zero, scale, offset, y);
    else
      value.look_up(n, codes, scale, offset, y);
  }
};

}  // namespace gradus::cpu
