// Quantization: numbers stored as codes of 8 or 4 bits. A codebook has the value of each code; every block of
// elements has a scale and an offset, and x ~ offset + scale value[code]. Both backends use these functions.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace gradus {

// AbsMax: the scale is the block's largest magnitude; values are in [-1, 1], and there is no offset.
// ZeroPoint: the scale is max(x, 0) - min(x, 0); values are in [0, 1], and the offset is such that a code
// stands for exactly 0. Given: the caller gives the scales, which are above 0; there is no offset.
enum class Range : uint8_t { AbsMax, ZeroPoint, Given };

struct QuantShape {
  int64_t n, block;  // elements; elements per scale (the last block may be shorter)
  int bits = 8;  // or 4: two codes per byte, the first in its high half, and 0 in an unused half; then block
                 // is even, or at least n
  Range range = Range::AbsMax;
  constexpr int64_t blocks() const { return n / block + (n % block != 0); }
  constexpr int64_t begin(int64_t b) const { return b * block; }  // the first element of block b
  constexpr int64_t end(int64_t b) const { return block < n - b * block ? (b + 1) * block : n; }
  constexpr int64_t code_bytes() const { return bits == 8 ? n : n / 2 + n % 2; }
  bool operator==(const QuantShape&) const = default;
};

constexpr int64_t kStateBlock = 256;  // elements per scale of 8-bit optimizer states
constexpr QuantShape state_shape(int64_t n) { return {.n = n, .block = kStateBlock}; }

// The values of the codes, and tables for finding the nearest value. The search goes through the values in
// ascending order, which need not be the order of the codes.
struct Codebook {
  int32_t count = 0;       // number of values, at most 256
  float value[256] = {};   // indexed by code
  uint8_t code[256] = {};  // codes of the values in ascending order
  // The i-th value in ascending order is chosen for numbers up to the i-th boundary, which lies half way to
  // the next value or where the codebook's rule puts it (second_moment_codebook). From the last on, NaN.
  float boundary[256] = {};
  // For evenly spaced values, value = (code - zero) step and code = zero + round(t / step). Else step is 0.
  float step = 0, per_step = 0, zero = 0;
  // Else the search for the nearest value begins close below it (search_start). In a dynamic codebook,
  // arithmetic finds the start; in others, a table has the number of boundaries below each of 256 equal parts
  // of [-1, 1].
  float first_decade = 0;  // dynamic codebook: values in its lowest decade, on either side of 0; others: 0
  uint8_t below[256] = {};
};

constexpr uint8_t within_codes(float place, float last) {  // 0 for NaN
  return uint8_t(int32_t(place > last ? last : place > 0 ? place : 0.0f));
}
constexpr uint8_t nearest_evenly(float t, float per_step, float zero, float last) {
  return within_codes(std::rint(t * per_step) + zero, last);
}

// The number of boundaries of a signed dynamic codebook between 0 and `magnitude`, to within 1/4. Within a
// decade the boundaries are evenly spaced, so their number is a line. A decade has twice as many boundaries
// as the one below it, on ten times the length, so its line is a fifth as steep: the lowest line applies.
struct Line {
  float slope, start;
};
struct Decades {
  Line line[7] = {{1e6f / 0.9f, 1 - 0.1f / 0.9f}};
  constexpr Decades() {
    for (int d = 1; d < 7; ++d) line[d] = {line[d - 1].slope / 5, line[d - 1].start * 2};
  }
};
constexpr float dynamic_place(float magnitude) {
  constexpr Decades kDecades;
  float place = 128;
  for (const Line& line : kDecades.line) {
    const float here = std::fma(line.slope, magnitude, line.start);
    place = place < here ? place : here;  // NaN for NaN
  }
  return place;
}
// A place in ascending order; the nearest value is at this place or at the next one.
constexpr uint8_t dynamic_start(float t, float first_decade) {
  const float zero = first_decade == 1 ? 127 : -1, place = first_decade * dynamic_place(std::abs(t));
  const float start = zero + std::copysign(place - 0.5f, t);
  return uint8_t(int32_t(start > 0 ? start : 0.0f));
}
constexpr uint8_t search_start(const Codebook& codebook, float t) {
  if (codebook.first_decade > 0) return dynamic_start(t, codebook.first_decade);
  return codebook.below[within_codes(std::floor(t * 128) + 128, 255)];
}
constexpr uint8_t nearest_code(const Codebook& codebook, float t) {  // any code for NaN
  if (codebook.step > 0)
    return nearest_evenly(t, codebook.per_step, codebook.zero, float(codebook.count - 1));
  uint8_t place = search_start(codebook, t);
  while (t > codebook.boundary[place]) ++place;
  return codebook.code[place];
}

// The largest magnitude of a block, and its smallest and largest element, where 0 counts as an element. The
// magnitude is kept as bits, in which infinity is above all finite numbers, and NaN is above infinity.
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

// Maps an element to the interval of the codebook's values. The scale is infinite if an element or the
// difference of two elements is not finite.
struct Normalize {
  float scale, offset;
  float up, inverse;  // 1 / scale in two factors, because 1 / scale is infinite for some scales above 0
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
