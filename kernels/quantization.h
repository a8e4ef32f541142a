// Quantization: numbers kept as codes of 8 or 4 bits. A codebook says which value each code stands for; of
// every block of elements, x ~ offset + scale value[code]. Both backends work with these lines.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace gradus {

// AbsMax: scale is the block's largest magnitude, there is no offset, values go from -1 to 1. ZeroPoint:
// scale is the distance from the least to the greatest element (0 among them), values go from 0 to 1, and the
// offset is such that 0 has a code. Given: the scales are there already, above 0; no offset.
enum class Range : uint8_t { AbsMax, ZeroPoint, Given };

struct QuantShape {
  int64_t n, block;  // elements; how many share a scale (the last block may be shorter)
  int bits = 8;  // or 4, two codes a byte, the first in its high half, 0 in what is left over; then block is
                 // even, or at least n
  Range range = Range::AbsMax;
  constexpr int64_t blocks() const { return n / block + (n % block != 0); }
  constexpr int64_t begin(int64_t b) const { return b * block; }  // of block b, the first element
  constexpr int64_t end(int64_t b) const { return block < n - b * block ? (b + 1) * block : n; }
  constexpr int64_t code_bytes() const { return bits == 8 ? n : n / 2 + n % 2; }
  bool operator==(const QuantShape&) const = default;
};

constexpr int64_t kStateBlock = 256;  // of states of optimizers in 8 bits
constexpr QuantShape state_shape(int64_t n) { return {.n = n, .block = kStateBlock}; }

// What the codes stand for, and what finds the nearest one. The values are looked up in ascending order,
// which need not be that of the codes.
struct Codebook {
  int32_t count = 0;       // of values, at most 256
  float value[256] = {};   // by code
  uint8_t code[256] = {};  // of the values in ascending order
  // The i-th of them is for numbers up to the i-th boundary, half way to the next one, or where a codebook's
  // rule says (second_moment_codebook); from the last one on, NaN.
  float boundary[256] = {};
  // If the values are evenly spaced, (code - zero) step: then code = zero + round(t / step). Else step is 0.
  float step = 0, per_step = 0, zero = 0;
  // Else the search for the nearest value begins close below it (search_start): in the map of a dynamic
  // codebook by arithmetic, in others where one of 256 equal parts of [-1, 1] says, by the number of
  // boundaries below it.
  float first_decade = 0;  // of a dynamic map: values in its lowest decade, on either side of 0; else 0
  uint8_t below[256] = {};
};

constexpr uint8_t within_codes(float place, float last) {  // 0 for NaN
  return uint8_t(int32_t(place > last ? last : place > 0 ? place : 0.0f));
}
constexpr uint8_t nearest_evenly(float t, float per_step, float zero, float last) {
  return within_codes(std::rint(t * per_step) + zero, last);
}

// How many boundaries of a signed dynamic map lie between 0 and `magnitude`, 1/4 more or less: within a
// decade they are evenly spaced, so the number is a line there. A decade has twice as many as the one below
// it on ten times the length, so its line is a fifth as steep, and where two meet the lower one goes on.
constexpr float dynamic_place(float magnitude) {
  float place = 128, slope = 1e6f / 0.9f, start = 1 - 0.1f / 0.9f;
  for (int decade = 0; decade < 7; ++decade, slope /= 5, start *= 2) {
    const float line = std::fma(slope, magnitude, start);
    place = place < line ? place : line;  // NaN of NaN
  }
  return place;
}
// A place in the ascending order that the nearest value is at, or one behind.
constexpr uint8_t dynamic_start(float t, float first_decade) {
  const float zero = first_decade == 1 ? 127 : -1, place = first_decade * dynamic_place(std::abs(t));
  const float start = zero + std::copysign(place - 0.5f, t);
  return uint8_t(int32_t(start > 0 ? start : 0.0f));
}
constexpr uint8_t search_start(const Codebook& codebook, float t) {
  if (codebook.first_decade > 0) return dynamic_start(t, codebook.first_decade);
  return codebook.below[within_codes(std::floor(t * 128) + 128, 255)];
}
constexpr uint8_t nearest_code(const Codebook& codebook, float t) {  // of NaN, any
  if (codebook.step > 0)
    return nearest_evenly(t, codebook.per_step, codebook.zero, float(codebook.count - 1));
  uint8_t place = search_start(codebook, t);
  while (t > codebook.boundary[place]) ++place;
  return codebook.code[place];
}

// The largest magnitude of a block, its least and its greatest element; 0 counts as one. The magnitude as
// bits: those of infinity are above all finite ones, those of NaN above them.
struct Limits {
  uint32_t magnitude = 0;
  float least = 0, greatest = 0;
  constexpr void include(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x) & 0x7FFFFFFF;
    magnitude = bits > magnitude ? bits : magnitude;
    least = x < least ? x : least;
    greatest = x > greatest ? x : greatest;
  }
  constexpr void include(const Limits& other) {
    magnitude = other.magnitude > magnitude ? other.magnitude : magnitude;
    least = other.least < least ? other.least : least;
    greatest = other.greatest > greatest ? other.greatest : greatest;
  }
};

// From an element to where it lies among the codebook's values. The scale is infinite if an element is not
// finite, or the distance of two of them is not.
struct Normalize {
  float scale, offset;
  float up, inverse;  // 1 / scale in two factors: it is infinite for some scales that are not 0
  constexpr float operator()(float x) const { return (x - offset) * up * inverse; }
};
constexpr Normalize normalize_by(float scale) {
  const float up = scale < 0x1p-100f ? 0x1p100f : 1.0f;
  return {scale, 0, up, scale == 0 ? 0 : 1 / (scale * up)};
}
constexpr Normalize normalize_within(const Limits& limits, Range range, const Codebook& codebook,
                                     float given) {
  if (limits.magnitude >= 0x7F800000) return normalize_by(INFINITY);
  if (range == Range::Given) return normalize_by(given);
  if (range == Range::AbsMax) return normalize_by(std::bit_cast<float>(limits.magnitude));
  Normalize result = normalize_by(limits.greatest - limits.least);
  if (std::isinf(result.scale)) return result;
  result.offset = -result.scale * codebook.value[nearest_code(codebook, result(-limits.least))];
  return result;
}

}  // namespace gradus
