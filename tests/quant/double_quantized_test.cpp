// NF4 with double quantization: bytes, values from the codes only, dequantized parts, bitsandbytes' codes
// (tests/golden/make_qlora.py).
#include "src/quant/double_quantized.h"

#include "tests/nn/golden_testing.h"
#include "tests/quant/golden_inputs.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kSizes[] = {1, 63, 64, 65, 16383, 16384, 16385, 40001};
constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16};
int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }
int64_t bytes_of(int64_t n) { return blocks(n, 2) + blocks(n, 64) + 4 * blocks(n, kSpan); }

struct L12_DoubleQuantized : ::testing::TestWithParam<const char*> {
  Context context{GetParam()};
  const DoubleQuantizer quantizer{context.device};
  Tensor tensor(const std::vector<float>& values, const Shape& shape, DType dtype = DType::F32) {
    return from_host(context.device, values, shape, dtype, Kind::Weight, "w");
  }
  DoubleQuantized quantized(int64_t n) { return quantizer.quantize(tensor(golden_inputs(n), {n})); }
};
ON_DEVICES_WITH_DATA(L12_DoubleQuantized);

std::vector<double> part(const DoubleQuantized& q, int64_t begin, int64_t end, DType t = DType::F32) {
  return to_host<double>(dequantize(q, begin, end, t));
}
// The dequantized scales and elements, computed in double.
std::vector<double> scales_of(const DoubleQuantized& q) {
  const std::vector<int32_t> codes = to_host<int32_t>(q.scale_codes);
  const std::vector<double> scales = to_host<double>(q.scale_scales);
  const Codebook codebook = dynamic_codebook(Sign::Signed);
  std::vector<double> result;
  for (size_t i = 0; i < codes.size(); ++i)
    result.push_back(double(q.mean) + double(codebook.value[codes[i]]) * scales[i / 256]);
  return result;
}
std::vector<double> values_of(const DoubleQuantized& q) {
  const std::vector<int32_t> codes = to_host<int32_t>(q.codes);
  const std::vector<double> scales = scales_of(q);
  const Codebook codebook = nf4_codebook();
  std::vector<double> result;
  for (size_t i = 0; i < size_t(q.shape.numel()); ++i)  // the first code is in the upper half
    result.push_back(double(codebook.value[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4]) * scales[i / 64]);
  return result;
}
// 4 + 8/64 + 32/(64 x 256) bits per element, each of the three tensors rounded up; nothing else stays
// allocated.
TEST_P(L12_DoubleQuantized, BytesNamesAndKinds) {
  context.device.ctx();  // allocates what kernels need once
  Meter& meter = context.device.meter();
  for (const int64_t n : kSizes)
    for (const DType t : kTypes) {
      const Tensor w = tensor(golden_inputs(n), {1, n}, t);
      const Usage before = meter.now();
      const DoubleQuantized q = quantizer.quantize(w);
      EXPECT_EQ(q.bytes(), bytes_of(n)) << n;
      EXPECT_EQ(meter.now()[Kind::Weight] - before[Kind::Weight], bytes_of(n)) << n;
      EXPECT_EQ(meter.now()[Kind::Temporary], before[Kind::Temporary]) << n;
      EXPECT_EQ(meter.now()[Kind::Other], before[Kind::Other]) << "the codebooks belong to the quantizer";
      EXPECT_EQ(q.shape, (Shape{1, n}));
      for (const Tensor* x : {&q.codes, &q.scale_codes, &q.scale_scales}) {
        EXPECT_EQ(x->storage().kind(), Kind::Weight);
        EXPECT_EQ(x->storage().name().rfind("w.", 0), 0U) << x->storage().name();
      }
      EXPECT_EQ(q.scale_codes.numel(), blocks(n, 64));
      EXPECT_EQ(q.scale_scales.numel(), blocks(n, kSpan));
    }
}

TEST_P(L12_DoubleQuantized, APartIsThatOfTheWholeToTheBit) {
  const int64_t n = 40001;
  const DoubleQuantized q = quantized(n);
  for (const DType t : kTypes) {
    const std::vector<double> whole = part(q, 0, n, t);
    ASSERT_EQ(int64_t(whole.size()), n);
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 1},
                                                                             {0, 16383},
                                                                             {0, 16384},
                                                                             {0, 16385},
                                                                             {16384, 16385},
                                                                             {16384, 32768},
                                                                             {16384, n},
                                                                             {32768, n}})
      EXPECT_EQ(part(q, begin, end, t), std::vector<double>(whole.begin() + begin, whole.begin() + end))
          << name_of(t) << " [" << begin << ", " << end << ")";
    const Tensor y = dequantize(q, kSpan, n, t);
    EXPECT_EQ(y.shape(), (Shape{n - kSpan}));
    EXPECT_EQ(y.dtype(), t);
    EXPECT_EQ(y.storage().kind(), Kind::Temporary);
  }
}

// In fp32 a product and a sum are rounded (or only the sum: a fused multiply-add), then the value is rounded
// to its dtype.
TEST_P(L12_DoubleQuantized, ValuesAreThoseOfTheCodes) {
  for (const int64_t n : kSizes) {
    const DoubleQuantized q = quantized(n);
    const std::vector<double> want = values_of(q);
    for (const auto& [t, unit] : {std::pair(DType::F32, 0.0), {DType::BF16, 0x1p-8}, {DType::F16, 0x1p-11}}) {
      const std::vector<double> got = part(q, 0, n, t);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 0x1p-21 * 4 + unit * std::abs(want[i])) << name_of(t) << ", " << i;
    }
  }
}

// 0 and +-m are represented exactly: all scales are equal to their mean, so their difference from it is 0.
TEST_P(L12_DoubleQuantized, NumbersOfOneMagnitudeComeBack) {
  for (const float m : {0.0f, 0.7f, 3e-5f, 4096.0f})
    for (const int64_t n : {1, 65, 40001}) {
      std::vector<float> x(size_t(n), m);
      for (size_t i = 0; i < x.size(); i += 3) x[i] = -m;
      const DoubleQuantized q = quantizer.quantize(tensor(x, {n}));
      EXPECT_EQ(q.mean, m);
      EXPECT_EQ(to_host<double>(q.scale_scales), std::vector<double>(size_t(blocks(n, kSpan)), 0));
      EXPECT_EQ(part(q, 0, n), std::vector<double>(x.begin(), x.end())) << n << " of " << m;
    }
}

// bitsandbytes' CPU code looks codes of the dynamic codebook up in cells of 2^-15, so a scale's code may
// differ by 1.
TEST_P(L12_DoubleQuantized, AsBitsandbytesHasThem) {
  Golden file("tests/golden/qlora.safetensors");
  for (const int64_t n : {65536, 40001}) {
    const std::string of = "." + std::to_string(n);
    const auto codes_in = [&](const std::string& name, int64_t count) {
      std::vector<uint8_t> bytes(size_t(count), 0);
      file.file.read(name + of, DType::U8, {count}, bytes.data());
      return std::vector<int32_t>(bytes.begin(), bytes.end());
    };
    const DoubleQuantized q = quantized(n);
    std::vector<int32_t> codes = to_host<int32_t>(q.codes), reference = codes_in("codes", blocks(n, 2));
    if (n % 2) codes.back() &= 0xF0, reference.back() &= 0xF0;  // the last half byte is unused
    EXPECT_EQ(codes, reference);
    const double mean = file.read("mean" + of, {1})[0];
    EXPECT_NEAR(double(q.mean), mean, 1e-6 * mean);
    const std::vector<double> units = file.read("scale_scales" + of, {blocks(n, kSpan)}),
                              got_units = to_host<double>(q.scale_scales);
    for (size_t i = 0; i < units.size(); ++i) EXPECT_NEAR(got_units[i], units[i], 1e-5 * units[i]) << i;
    const std::vector<int32_t> ours = to_host<int32_t>(q.scale_codes),
                               expected = codes_in("scale_codes", blocks(n, 64));
    ASSERT_EQ(ours.size(), expected.size());
    size_t equal = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_LE(std::abs(ours[i] - expected[i]), 1) << "scale " << i;
      equal += ours[i] == expected[i];
    }
    RecordProperty("% of scales' codes equal, " + std::to_string(n),
                   std::to_string(100.0 * double(equal) / double(ours.size())));
    EXPECT_GE(double(equal), 0.99 * double(ours.size()));
    const std::vector<double> values = file.read("values" + of, {blocks(n, 8)}), got = part(q, 0, n);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t block = i * 8 / 64;
      const double step = ours[block] == expected[block] ? 0 : 0.015 * units[block / 256];
      ASSERT_NEAR(got[i * 8], values[i], 2e-6 + step) << "element " << i * 8;
    }
  }
}

// dequantize() needs memory only for the elements and one scale per 64 of them.
TEST_P(L12_DoubleQuantized, WhatMakingNumbersTakes) {
  const DoubleQuantized q = quantized(40001);
  Meter& meter = context.device.meter();
  for (const DType t : kTypes) {
    meter.reset_peak();
    const int64_t before = meter.now()[Kind::Temporary], n = 40001 - kSpan;
    const Tensor y = dequantize(q, kSpan, 40001, t);
    EXPECT_EQ(meter.at_peak()[Kind::Temporary] - before, n * size_of(t) + 4 * blocks(n, 64));
    EXPECT_EQ(meter.now()[Kind::Temporary] - before, n * size_of(t));
  }
}

TEST_P(L12_DoubleQuantized, WhatIsEmptyIsRefused) {
  expect_refused("quantize: w [0,3] has no elements", [&] {
    quantizer.quantize(Tensor(context.device, {0, 3}, DType::F32, Kind::Weight, "w"));
  });
}

TEST(L12_DoubleQuantizedOnMeta, BytesWithoutData) {
  Context context("meta");
  const DoubleQuantizer quantizer(context.device);
  const Tensor w(context.device, {1 << 13, 1 << 12}, DType::BF16, Kind::Weight, "w");
  const DoubleQuantized q = quantizer.quantize(w);
  EXPECT_EQ(q.bytes(), (int64_t(1) << 24) + (int64_t(1) << 19) + (int64_t(1) << 13));
  EXPECT_EQ(double(q.bytes()) * 8 / double(w.numel()), 4 + 8.0 / 64 + 32.0 / (64 * 256));
  EXPECT_EQ(dequantize(q, kSpan, 3 * kSpan + 5, DType::BF16).shape(), (Shape{2 * kSpan + 5}));
}

}  // namespace
}  // namespace gradus
