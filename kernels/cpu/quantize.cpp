#include "kernels/cpu/lookup.h"

namespace gradus::cpu {

// Elements are worked on in groups: of so many, or whole small blocks of about as many together.
constexpr int64_t kGroup = 4096;

[[gnu::flatten, gnu::noinline]] static uint32_t magnitude(int64_t n, const float* x) {
  uint32_t most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF);
  return most;
}
[[gnu::flatten, gnu::noinline]] static void include_ends(int64_t n, const float* x, Limits& limits) {
  float least = limits.least, greatest = limits.greatest;
#pragma omp simd reduction(min : least) reduction(max : greatest)
  for (int64_t i = 0; i < n; ++i) {
    least = x[i] < least ? x[i] : least;
    greatest = x[i] > greatest ? x[i] : greatest;
  }
  limits.least = least;
  limits.greatest = greatest;
}

[[gnu::flatten, gnu::noinline]] static void codes_evenly(int64_t n, const float* x, Normalize place,
                                                         float per_step, float zero, float last,
                                                         uint8_t* codes) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) codes[i] = nearest_evenly(place(x[i]), per_step, zero, last);
}
[[gnu::flatten, gnu::noinline]] static void codes_listed(int64_t n, const float* x, Normalize place,
                                                         const QuantBook& book, uint8_t* codes) {
  float t[kGroup];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) t[i] = place(x[i]);
#pragma GCC unroll 8
  for (int64_t i = 0; i < n; ++i) codes[i] = nearest_or_below(book, t[i]);
  if (book.crowded)
    for (int64_t i = 0; i < n; ++i) codes[i] = nearest_from(book, codes[i], t[i]);
  if (book.count <= 16)  // larger books have their codes in ascending order
    for (int64_t i = 0; i < n; ++i) codes[i] = book.code[codes[i]];
}
[[gnu::flatten, gnu::noinline]] static void pack(int64_t n, const uint8_t* codes, uint8_t* packed) {
  // BEGIN SOLUTION 10.3
  for (int64_t i = 0; i < n / 2; ++i) packed[i] = uint8_t(codes[2 * i] << 4 | codes[2 * i + 1]);
  if (n % 2) packed[n / 2] = uint8_t(codes[n - 1] << 4);
  // STUB: todo("10.3", "two codes a byte, the first in the high half", n, codes, packed);
  // END SOLUTION 10.3
}

// f(first, last) for groups of blocks that are no larger than a group, on all threads.
template <class F>
static void for_groups(const QuantShape& s, F f) {
  const int64_t blocks = s.blocks(), each = kGroup / s.block;
  parallel_for((blocks + each - 1) / each, kGrain / kGroup, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) f(g * each, std::min(blocks, (g + 1) * each));
  });
}
// f(at, n) for the groups of a large block's elements, on all threads.
template <class F>
static void for_parts(const QuantShape& s, int64_t block, F f) {
  const int64_t begin = s.begin(block), end = s.end(block);
  parallel_for((end - begin + kGroup - 1) / kGroup, kGrain / kGroup, [&](int64_t first, int64_t last) {
    for (int64_t g = first; g < last; ++g) f(begin + g * kGroup, std::min(kGroup, end - begin - g * kGroup));
  });
}

// What every part of a call to quantize() shares.
struct Quantize {
  const QuantShape& s;
  const QuantBook& book;
  CBuf x;
  Out codes, scales, offsets;
  Cells cells;

  void include(int64_t n, const float* x, Limits& limits) const {
    limits.magnitude = std::max(limits.magnitude, magnitude(n, x));
    if (s.range == Range::ZeroPoint) include_ends(n, x, limits);
  }
  Normalize place_of(int64_t block, const Limits& limits) const {
    float& scale = scales.as<float>()[block];  // read if it is given
    const Normalize place = normalize_within(limits, s.range, book, scale);
    scale = place.scale;
    if (offsets.wanted()) offsets.as<float>()[block] = place.offset;
    return place;
  }
  void find_codes(int64_t n, const float* x, const Normalize& place, uint8_t* to) const {
    if (book.step > 0)
      codes_evenly(n, x, place, book.per_step, book.zero, float(book.count - 1), to);
    else if (kHasLookup && cells.usable)
      codes_by_lookup(n, x, place, cells, to);
    else
      codes_listed(n, x, place, book, to);
  }
  // Several small blocks. First their scales, then their codes: so the processor has several under way.
  void small(int64_t first, int64_t last) const {
    float stage[kGroup];
    uint8_t unpacked[kGroup];
    Normalize places[kGroup];
    const int64_t at = s.begin(first), n = s.end(last - 1) - at;
    const float* const group = read("quantize", x, at, n, stage);
    uint8_t* const to = s.bits == 8 ? codes.as<uint8_t>() + at : unpacked;
    const auto size = [&](int64_t b) { return s.end(b) - s.begin(b); };
    for (int64_t b = first; b < last; ++b) {
      Limits limits;
      include(size(b), group + (s.begin(b) - at), limits);
      places[b - first] = place_of(b, limits);
    }
    for (int64_t b = first; b < last; ++b)
      find_codes(size(b), group + (s.begin(b) - at), places[b - first], to + (s.begin(b) - at));
    if (s.bits == 4) pack(n, unpacked, codes.as<uint8_t>() + at / 2);
  }
  void large(int64_t block) const {
    Limits limits;
    for_parts(s, block, [&](int64_t at, int64_t n) {
      float stage[kGroup];
      Limits part;
      include(n, read("quantize", x, at, n, stage), part);
#pragma omp critical
      limits.include(part);
    });
    const Normalize place = place_of(block, limits);
    for_parts(s, block, [&](int64_t at, int64_t n) {
      float stage[kGroup];
      uint8_t unpacked[kGroup];
      find_codes(n, read("quantize", x, at, n, stage), place,
                 s.bits == 8 ? codes.as<uint8_t>() + at : unpacked);
      if (s.bits == 4) pack(n, unpacked, codes.as<uint8_t>() + at / 2);
    });
  }
};

void quantize(const Ctx&, const QuantShape& s, CBuf book, CBuf x, Out codes, Out scales, Out offsets) {
  check_quantize(s, book, codes, scales, offsets);
  const Quantize q{s, *book.as<QuantBook>(), x, codes, scales, offsets, Cells(*book.as<QuantBook>())};
  if (s.block <= kGroup)
    for_groups(s, [&](int64_t first, int64_t last) { q.small(first, last); });
  else
    for (int64_t b = 0; b < s.blocks(); ++b) q.large(b);
}

// Of codes in halves of bytes.
[[gnu::flatten, gnu::noinline]] static void values_packed(int64_t n, const uint8_t* codes, const float* value,
                                                          float scale, float offset, float* y) {
  for (int64_t i = kHasLookup ? values_by_lookup(n, codes, value, scale, offset, y) : 0; i < n; ++i)
    y[i] = offset + scale * value[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4];
}
[[gnu::flatten, gnu::noinline]] static void values_evenly(int64_t n, const uint8_t* codes, float step,
                                                          float zero, float scale, float offset, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = offset + scale * ((float(codes[i]) - zero) * step);
}
[[gnu::flatten, gnu::noinline]] static void values_listed(int64_t n, const uint8_t* codes, const float* value,
                                                          float scale, float offset, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = offset + scale * value[codes[i]];
}

void dequantize(const Ctx&, const QuantShape& s, CBuf book_in, CBuf codes, CBuf scales, CBuf offsets, Out y) {
  check_dequantize(s, book_in, codes, scales, offsets);
  const QuantBook& book = *book_in.as<QuantBook>();
  // Some of the elements of a block.
  const auto values = [&](int64_t b, int64_t at, int64_t n) {
    const float scale = scales.as<float>()[b], offset = offsets.p ? offsets.as<float>()[b] : 0;
    const uint8_t* const in = codes.as<uint8_t>() + (s.bits == 8 ? at : at / 2);
    float stage[kGroup];
    float* const to = y.t == DType::F32 && y.w == Write::Set ? y.as<float>() + at : stage;
    if (s.bits == 4)
      values_packed(n, in, book.value, scale, offset, to);
    else if (book.step > 0)
      values_evenly(n, in, book.step, book.zero, scale, offset, to);
    else
      values_listed(n, in, book.value, scale, offset, to);
    if (to == stage) write("dequantize", n, to, y, at);
  };
  if (!y.wanted()) return;
  if (s.block <= kGroup)
    for_groups(s, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) values(b, s.begin(b), s.end(b) - s.begin(b));
    });
  else
    for (int64_t b = 0; b < s.blocks(); ++b)
      for_parts(s, b, [&](int64_t at, int64_t n) { values(b, at, n); });
}

}  // namespace gradus::cpu
