#include "kernels/cpu/codes.h"

namespace gradus::cpu {

constexpr int64_t kBlocksTogether = 1024;  // elements of small blocks: first all scales, then all codes

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

[[gnu::flatten, gnu::noinline]] static void pack(int64_t n, const uint8_t* codes, uint8_t* packed) {
  // BEGIN SOLUTION 10.2
  for (int64_t i = 0; i < n / 2; ++i) packed[i] = uint8_t(codes[2 * i] << 4 | codes[2 * i + 1]);
  if (n % 2) packed[n / 2] = uint8_t(codes[n - 1] << 4);
  // STUB: todo("10.2", "two codes per byte, the first in the high half", n, codes, packed);
  // END SOLUTION 10.2
}

// Calls f(at, n) for the chunks of the elements [begin, end), on all threads.
template <class F>
static void for_chunks(int64_t begin, int64_t end, F f) {
  if (end - begin <= kChunkOfCodes) return f(begin, end - begin);
  parallel_for((end - begin + kChunkOfCodes - 1) / kChunkOfCodes, 4, [&](int64_t first, int64_t last) {
    for (int64_t at = begin + first * kChunkOfCodes; first < last; ++first, at += kChunkOfCodes)
      f(at, std::min(kChunkOfCodes, end - at));
  });
}
// Calls f(block, at, n) for the parts of blocks within a chunk.
template <class F>
static void for_blocks(const QuantShape& s, int64_t at, int64_t n, F f) {
  for (int64_t b = at / s.block, end = at + n; at < end; at = s.end(b++))
    f(b, at, std::min(end, s.end(b)) - at);
}

// The arguments of quantize(), for all parts of the call.
struct Quantize {
  const QuantShape& s;
  Coder coder;
  CBuf x;
  Out codes, scales, offsets;

  void include(int64_t n, const float* x, Limits& limits) const {
    limits.magnitude = std::max(limits.magnitude, magnitude(n, x));
    if (s.range == Range::ZeroPoint) include_ends(n, x, limits);
  }
  void set_scale(int64_t block, const Limits& limits) const {
    float& scale = scales.as<float>()[block];  // an input with Range::Given
    const Normalize place = normalize_within(limits, s.range, coder.codebook, scale);
    scale = place.scale;
    if (offsets.wanted()) offsets.as<float>()[block] = place.offset;
  }
  // For the elements [at, at + n), which are in `chunk`.
  void find_codes(int64_t at, int64_t n, const float* chunk) const {
    uint8_t unpacked[kChunkOfCodes];
    uint8_t* const to = s.bits == 8 ? codes.as<uint8_t>() + at : unpacked;
    for_blocks(s, at, n, [&](int64_t block, int64_t from, int64_t count) {
      fetch(count, chunk + (from - at) + n);
      Normalize place = normalize_by(scales.as<float>()[block]);
      if (offsets.wanted()) place.offset = offsets.as<float>()[block];
      coder.encode(count, chunk + (from - at), place, to + (from - at));
    });
    if (s.bits == 4) pack(n, unpacked, codes.as<uint8_t>() + at / 2);
  }
  // Blocks that lie in one chunk: first all scales, so that several divisions are in flight.
  void small_blocks(int64_t first, int64_t last) const {
    float stage[kChunkOfCodes];
    const int64_t at = s.begin(first), n = s.end(last - 1) - at;
    const float* const chunk = read("quantize", x, at, n, stage);
    for_blocks(s, at, n, [&](int64_t block, int64_t from, int64_t count) {
      Limits limits;
      include(count, chunk + (from - at), limits);
      set_scale(block, limits);
    });
    find_codes(at, n, chunk);
  }
  void large_block(int64_t block) const {
    Limits limits;
    for_chunks(s.begin(block), s.end(block), [&](int64_t at, int64_t n) {
      float stage[kChunkOfCodes];
      Limits chunk;
      include(n, read("quantize", x, at, n, stage), chunk);
#pragma omp critical
      limits.include(chunk);
    });
    set_scale(block, limits);
    for_chunks(s.begin(block), s.end(block), [&](int64_t at, int64_t n) {
      float stage[kChunkOfCodes];
      find_codes(at, n, read("quantize", x, at, n, stage));
    });
  }
};

void quantize(const Ctx&, const QuantShape& s, CBuf codebook, CBuf x, Out codes, Out scales, Out offsets) {
  check_quantize(s, codebook, codes, scales, offsets);
  const Quantize q{s, Coder(*codebook.as<Codebook>()), x, codes, scales, offsets};
  const int64_t blocks = s.blocks(), each = std::max<int64_t>(kBlocksTogether / s.block, 1);
  if (s.block > kChunkOfCodes)
    for (int64_t b = 0; b < blocks; ++b) q.large_block(b);
  else
    parallel_for((blocks + each - 1) / each, 4, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) q.small_blocks(g * each, std::min(blocks, (g + 1) * each));
    });
}

// Dequantizes codes that are packed two per byte.
[[gnu::flatten, gnu::noinline]] static void values_packed(int64_t n, const uint8_t* codes, const float* value,
                                                          float scale, float offset, float* y) {
  for (int64_t i = look_up_packed(n, codes, value, scale, offset, y); i < n; ++i)
    y[i] = offset + scale * value[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4];
}
void dequantize(const Ctx&, const QuantShape& s, CBuf codebook_in, CBuf codes, CBuf scales, CBuf offsets,
                Out y) {
  check_dequantize(s, codebook_in, codes, scales, offsets);
  if (!y.wanted()) return;
  const Coder coder(*codebook_in.as<Codebook>());
  const bool in_place = y.t == DType::F32 && y.w == Write::Set;
  for_chunks(0, s.n, [&](int64_t at, int64_t n) {
    float stage[kChunkOfCodes];
    float* const chunk = in_place ? y.as<float>() + at : stage;
    for_blocks(s, at, n, [&](int64_t block, int64_t from, int64_t count) {
      const float scale = scales.as<float>()[block], offset = offsets.p ? offsets.as<float>()[block] : 0;
      const uint8_t* const in = codes.as<uint8_t>() + (s.bits == 8 ? from : from / 2);
      float* const to = chunk + (from - at);
      fetch<true>(count, to + n);
      if (s.bits == 4)
        values_packed(count, in, coder.codebook.value, scale, offset, to);
      else
        coder.decode(count, in, scale, offset, to);
    });
    if (!in_place) write("dequantize", n, chunk, y, at);
  });
}

}  // namespace gradus::cpu
