// Codes of 8 bits of elements that share a scale, and the elements again (of 4 bits: values_packed in
// quantize.cpp).
#pragma once
#include "kernels/cpu/lookup.h"

namespace gradus::cpu {

constexpr int64_t kChunkOfCodes = 4096;  // elements that a call below takes at most

// Asks memory for n numbers before they are needed: the processor by itself looks no further than a page.
template <bool kToWrite = false>
void fetch(int64_t n, const float* x) {
  for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(x + i, kToWrite);
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
[[gnu::flatten, gnu::noinline]] inline void codes_listed(int64_t n, const float* x, Normalize place,
                                                         const Codebook& codebook, uint8_t* codes) {
  if (kHasLookup && !codebook.crowded && codebook.count > 16)
    return codes_by_cells(n, x, place, codebook, codes);
  float t[kChunkOfCodes];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) t[i] = place(x[i]);
#pragma GCC unroll 8
  for (int64_t i = 0; i < n; ++i) codes[i] = nearest_or_below(codebook, t[i]);
  if (codebook.crowded)
    for (int64_t i = 0; i < n; ++i) codes[i] = nearest_from(codebook, codes[i], t[i]);
  if (codebook.count <= 16)  // larger codebooks have their codes in ascending order
    for (int64_t i = 0; i < n; ++i) codes[i] = codebook.code[codes[i]];
}
inline void codes_of(int64_t n, const float* x, Normalize place, const Codebook& codebook, uint8_t* codes) {
  if (codebook.step > 0)
    codes_evenly(n, x, place, codebook.per_step, codebook.zero, float(codebook.count - 1), codes);
  else
    codes_listed(n, x, place, codebook, codes);
}

[[gnu::flatten, gnu::noinline]] inline void values_evenly(int64_t n, const uint8_t* codes, float step,
                                                          float zero, float scale, float offset, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = offset + scale * ((float(codes[i]) - zero) * step);
}
[[gnu::flatten, gnu::noinline]] inline void values_listed(int64_t n, const uint8_t* codes, const float* value,
                                                          float scale, float offset, float* y) {
  for (int64_t i = kHasLookup ? values_by_bytes(n, codes, value, scale, offset, y) : 0; i < n; ++i)
    y[i] = offset + scale * value[codes[i]];
}
inline void values_of(int64_t n, const uint8_t* codes, const Codebook& codebook, float scale, float offset,
                      float* y) {
  if (codebook.step > 0)
    values_evenly(n, codes, codebook.step, codebook.zero, scale, offset, y);
  else
    values_listed(n, codes, codebook.value, scale, offset, y);
}

}  // namespace gradus::cpu
