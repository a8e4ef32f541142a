// Shared by the tests of quantize and dequantize: formats, layouts, a call.
#pragma once
#include <algorithm>
#include <cstring>

#include "src/quant/codebook.h"
#include "tests/kernels/kernel_contract.h"
#include "tests/refusal_testing.h"

namespace gradus {

struct Format {
  const char* name;
  Codebook codebook;
  int bits;
  Range range = Range::AbsMax;
};
// Two codebooks that no paper has: one with values so close that many of them share their upper 16 bits, and
// one of 16 values, several of which lie within 1/16.
inline Codebook crowded_codebook(int count, int direction = 1) {
  std::vector<float> value;
  for (int i = 0; i < count; ++i) value.push_back(0.5f + 0.0625f * float(i) / float(count));
  value.front() = -1, value.back() = 1;
  if (direction < 0) std::reverse(value.begin(), value.end());
  return listed_codebook(value);
}
inline const std::vector<Format>& formats() {
  static const std::vector<Format> all{{"absmax 8", absmax_codebook(8), 8},
                                       {"absmax 4", absmax_codebook(4), 4},
                                       {"zero point 8", zero_point_codebook(8), 8, Range::ZeroPoint},
                                       {"zero point 4", zero_point_codebook(4), 4, Range::ZeroPoint},
                                       {"given 8", absmax_codebook(8), 8, Range::Given},
                                       {"given nf4", nf4_codebook(), 4, Range::Given},
                                       {"nf4", nf4_codebook(), 4},
                                       {"fp4", fp4_codebook(), 4},
                                       {"dynamic", dynamic_codebook(Sign::Signed), 8},
                                       {"dynamic unsigned", dynamic_codebook(Sign::Unsigned), 8},
                                       {"nf4 in 8 bits", nf4_codebook(), 8},
                                       {"crowded 8", crowded_codebook(200), 8},
                                       {"crowded 4", crowded_codebook(16), 4},
                                       {"crowded, downwards", crowded_codebook(16, -1), 4}};
  return all;
}

// Numbers that cover all cases: all upper halves of a float with some lower halves, the boundaries, and the
// floats next to them.
inline std::vector<float> telling_numbers(const Codebook& codebook) {
  std::vector<float> numbers;
  for (uint32_t upper = 0; upper < 65536; ++upper)
    for (const uint32_t lower : {0, 1, 0x7FFF, 0xFFFF})
      if (const float t = std::bit_cast<float>(upper << 16 | lower); std::isfinite(t)) numbers.push_back(t);
  for (int i = 0; i + 1 < codebook.count; ++i)
    for (const float direction : {-2.0f, 2.0f}) {
      numbers.push_back(codebook.boundary[i]);
      numbers.push_back(std::nextafter(codebook.boundary[i], direction));
    }
  return numbers;
}
inline int boundaries_below(const Codebook& codebook, float t) {
  return int(std::lower_bound(codebook.boundary, codebook.boundary + codebook.count - 1, t) -
             codebook.boundary);
}

// Raw bytes for kernels; the bytes around them must not change.
class Bytes {
 public:
  explicit Bytes(int64_t n) : n_(n), bytes_(size_t(n) + 2 * kAround, kGuard) {}
  uint8_t* data() { return bytes_.data() + kAround; }
  std::vector<uint8_t> values() {
    wait_for_kernels();
    for (int64_t i = 0; i < kAround; ++i) {
      EXPECT_EQ(bytes_[size_t(i)], kGuard) << "before the codes";
      EXPECT_EQ(bytes_[size_t(kAround + n_ + i)], kGuard) << "after the codes";
    }
    return {data(), data() + n_};
  }

 private:
  static constexpr int64_t kAround = 65;
  static constexpr uint8_t kGuard = 0xA5;
  int64_t n_;
  SharedVector<uint8_t> bytes_;
};

struct Result {
  std::vector<uint8_t> bytes;
  std::vector<int> codes;
  std::vector<double> scales, offsets;
};

struct QuantCall {
  const Format& f;
  QuantShape s;
  SharedVector<char> codebook = SharedVector<char>(sizeof(Codebook));
  QuantCall(const Format& f, int64_t n, int64_t block) : f(f), s{n, block, f.bits, f.range} {
    std::memcpy(codebook.data(), &f.codebook, sizeof(Codebook));
  }
  CBuf codebook_in() const { return {codebook.data(), DType::U8}; }

  Result quantize(const Buffer& x, double given = 1) const {
    Bytes codes(s.code_bytes());
    Buffer scales(DType::F32, std::vector<double>(size_t(s.blocks()), f.range == Range::Given ? given : 77)),
        offsets = Buffer::random(DType::F32, s.blocks(), 3);
    TestCtx ctx(cost::quantize(s, x.type()));
    ctx.poison_scratch();
    table().quantize(ctx, s, codebook_in(), x.in(), {codes.data(), DType::U8}, scales.out(Write::Set),
                     f.range == Range::ZeroPoint ? offsets.out(Write::Set) : Out{});
    EXPECT_TRUE(ctx.kept_to_its_scratch()) << f.name;
    Result r{codes.values(), {}, scales.values(), offsets.values()};
    if (f.range != Range::ZeroPoint) r.offsets.assign(size_t(s.blocks()), 0);
    for (int64_t i = 0; i < s.n; ++i)
      r.codes.push_back(s.bits == 8 ? r.bytes[size_t(i)]
                        : i % 2     ? r.bytes[size_t(i / 2)] & 15
                                    : r.bytes[size_t(i / 2)] >> 4);
    return r;
  }
};

// (n, block): sizes around chunks of 4,096, vectors of 32 and 16, a GPU's pieces, whole tensors.
inline std::vector<std::pair<int64_t, int64_t>> layouts(int bits) {
  std::vector<std::pair<int64_t, int64_t>> all{
      {1, 1},      {1, 64},    {2, 64},      {7, 7},       {63, 64},     {64, 64},     {65, 64},   {257, 64},
      {1025, 256}, {4097, 64}, {4095, 4096}, {8193, 4096}, {8195, 4098}, {9001, 9001}, {300, 100}, {255, 2}};
  if (bits == 8) all.insert(all.end(), {{5, 1}, {100, 3}, {5000, 4097}});
  return all;
}

}  // namespace gradus
