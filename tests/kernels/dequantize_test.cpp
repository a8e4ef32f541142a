// dequantize from its contract: what each code comes back as, on every device, in every dtype.
#include "tests/kernels/quantize_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L10_Dequantize);

// All codes, two scales and offsets: y = offset + scale value, each step rounded to fp32.
TEST_P(L10_Dequantize, WhatCodesComeBackAs) {
  for (const Format& f : formats())
    for (const auto& [n, block] : layouts(f.bits)) {
      const QuantCall run(f, n, block);
      Bytes codes(run.s.code_bytes());
      for (int64_t i = 0; i < run.s.code_bytes(); ++i) {
        const int a = int((i * 7 + 3) % f.book.count), b = int((i * 5 + 1) % f.book.count);
        codes.data()[i] = uint8_t(f.bits == 8 ? a : a << 4 | b);
      }
      const std::vector<uint8_t> bytes = codes.values();
      const Buffer scales = Buffer::random(DType::F32, run.s.blocks(), 1),
                   offsets = Buffer::random(DType::F32, run.s.blocks(), 2);
      std::vector<double> expected;
      for (int64_t i = 0; i < n; ++i) {
        const size_t b = size_t(i / block);
        const int code = f.bits == 8 ? bytes[size_t(i)]
                         : i % 2     ? bytes[size_t(i / 2)] & 15
                                     : bytes[size_t(i / 2)] >> 4;
        const float r = float(scales.values()[b]) * f.book.value[code];
        expected.push_back(f.range == Range::ZeroPoint ? float(offsets.values()[b]) + r : r);
      }
      const CBuf moved = f.range == Range::ZeroPoint ? offsets.in() : CBuf{};
      for (const DType T : float_types()) {
        if (T == DType::F64) continue;
        const KernelCall call{"dequantize " + std::string(f.name),
                              {{"y", {T}, expected}},
                              [&](const Ctx& c, const std::vector<Out>& out) {
                                table().dequantize(c, run.s, run.book_in(), {codes.data(), DType::U8},
                                                   scales.in(), moved, out[0]);
                              }};
        ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
      }
    }
}

}  // namespace
}  // namespace gradus
