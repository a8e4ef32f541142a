// Quantized tensors: bytes and kinds, bitsandbytes' codes (tests/golden/make_quantization.py), refusals.
#include "src/quant/quantized.h"

#include "tests/nn/golden_testing.h"
#include "tests/quant/golden_inputs.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

class L10_Quantized : public ::testing::TestWithParam<const char*> {
 protected:
  Context context{GetParam()};
  Tensor tensor(const std::vector<float>& values, const Shape& shape, DType dtype = DType::F32) {
    return from_host(context.device, values, shape, dtype, Kind::Weight, "w");
  }
};
ON_DEVICES_WITH_DATA(L10_Quantized);

TEST_P(L10_Quantized, FourBitsAsBitsandbytesHasThem) {
  Golden file("tests/golden/quantization.safetensors");
  const auto bytes_of = [&](const std::string& name, int64_t n) {
    std::vector<uint8_t> bytes(size_t(n), 0);
    file.file.read(name, DType::U8, {n}, bytes.data());
    return std::vector<int32_t>(bytes.begin(), bytes.end());
  };
  for (const auto& [of, codebook] : {std::pair("nf4", nf4_codebook()), {"fp4", fp4_codebook()}})
    for (const auto& [suffix, n] : {std::pair<std::string, int64_t>{"", 65536}, {".odd", 63}}) {
      const std::string name = of + suffix;
      const Quantizer quantizer(context.device, {.name = name, .codebook = codebook, .bits = 4, .block = 64});
      const Quantized q = quantizer.quantize(tensor(golden_inputs(n), {n}));
      std::vector<int32_t> codes = to_host<int32_t>(q.codes),
                           expected = bytes_of("codes." + name, (n + 1) / 2);
      if (n % 2) codes.back() &= 0xF0, expected.back() &= 0xF0;  // the last half byte is unused
      EXPECT_EQ(codes, expected) << name;
      EXPECT_EQ(to_host<double>(q.scales), file.read("absmax." + name, {(n + 63) / 64})) << name;
      std::vector<double> values = to_host<double>(quantizer.dequantize(q, DType::F32));
      values.resize(size_t(std::min<int64_t>(n, 64)));
      EXPECT_EQ(values, file.read("values." + name, {int64_t(values.size())})) << name;
    }
}

// bitsandbytes' CPU code does not always find the nearest value, because it looks codes up in cells of width
// 2^-15.
TEST_P(L10_Quantized, DynamicCodesBesideBitsandbytes) {
  Golden file("tests/golden/quantization.safetensors");
  for (const Sign sign : {Sign::Signed, Sign::Unsigned}) {
    const std::string name = sign == Sign::Signed ? "dynamic_signed" : "dynamic_unsigned";
    std::vector<float> x = golden_inputs(65536);
    if (sign == Sign::Unsigned)
      for (float& v : x) v = std::abs(v);
    const Quantizer quantizer(context.device,
                              {.name = name, .codebook = dynamic_codebook(sign), .bits = 8, .block = 256});
    const Quantized q = quantizer.quantize(tensor(x, {65536}));
    EXPECT_EQ(to_host<double>(q.scales), file.read("absmax." + name, {256}));
    const std::vector<int32_t> codes = to_host<int32_t>(q.codes);
    std::vector<uint8_t> reference(65536);
    file.file.read("codes." + name, DType::U8, {65536}, reference.data());
    const std::vector<double> scales = to_host<double>(q.scales);
    int64_t equal = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
      equal += codes[i] == reference[i];
      if (codes[i] == reference[i]) continue;
      const Codebook codebook = dynamic_codebook(sign);
      const double t = double(x[i]) / scales[i / 256];
      EXPECT_LE(std::abs(t - codebook.value[codes[i]]), std::abs(t - codebook.value[reference[i]]) + 1e-7)
          << "where the codes differ, the value of gradus must be nearer";
      EXPECT_LE(std::abs(t - codebook.value[reference[i]]), std::abs(t - codebook.value[codes[i]]) + 0x1p-14)
          << "bitsandbytes' value may be farther by at most one cell";
    }
    RecordProperty("% of " + name + " codes equal", std::to_string(100.0 * double(equal) / 65536));
    EXPECT_GE(equal, 65536 * (sign == Sign::Signed ? 0.998 : 0.996)) << name;
  }
}

TEST_P(L10_Quantized, BytesAndKinds) {
  context.device.ctx();  // allocates what kernels need once
  const int64_t before = context.device.meter().now().allocated();
  struct Case {
    int bits;
    int64_t block;
    Range range;
    int64_t bytes;  // bytes of 1,000 elements
  };
  for (const Case& c : std::vector<Case>{{8, 0, Range::AbsMax, 1004},
                                         {8, 64, Range::AbsMax, 1064},
                                         {8, 64, Range::ZeroPoint, 1128},
                                         {4, 64, Range::AbsMax, 564},
                                         {4, 0, Range::Given, 504},
                                         {4, 1000, Range::ZeroPoint, 508}}) {
    const QuantFormat format{
        .name = "f",
        .codebook = c.range == Range::ZeroPoint ? zero_point_codebook(c.bits) : absmax_codebook(c.bits),
        .bits = c.bits,
        .block = c.block,
        .range = c.range,
        .given = 2};
    const Quantizer quantizer(context.device, format);
    const Quantized q = quantizer.quantize(tensor(golden_inputs(1000), {10, 100}));
    EXPECT_EQ(q.bytes(), c.bytes) << c.bits << " bits in blocks of " << c.block;
    EXPECT_EQ(q.codes.storage().kind(), Kind::Weight);
    EXPECT_EQ(q.scales.storage().kind(), Kind::Weight);
    EXPECT_EQ(q.codes.storage().name(), "w.codes");
    EXPECT_EQ(q.scales.storage().name(), "w.scales");
    EXPECT_EQ(q.shape, (Shape{10, 100}));
    for (const DType T : {DType::F32, DType::BF16, DType::F16}) {
      const Tensor y = quantizer.dequantize(q, T);
      EXPECT_EQ(y.shape(), (Shape{10, 100}));
      EXPECT_EQ(y.dtype(), T);
    }
    if (c.range == Range::Given) {
      EXPECT_EQ(to_host<double>(q.scales), std::vector<double>{2});
    }
  }
  for (const int64_t block : {0, 64}) {
    const Quantizer quantizer(context.device,
                              {.name = "f", .codebook = absmax_codebook(8), .bits = 8, .block = block});
    const Quantized none = quantizer.quantize(tensor({}, {0, 3}));
    EXPECT_EQ(none.codes.numel(), 0);
    EXPECT_TRUE(to_host<double>(quantizer.dequantize(none, DType::F32)).empty());
  }
  EXPECT_EQ(context.device.meter().now().allocated(), before) << "all memory must be freed";
}

TEST_P(L10_Quantized, WhatIsNotFiniteIsRefusedByItsBlock) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> x = golden_inputs(200);
    x[130] = bad;
    const Quantizer quantizer(context.device,
                              {.name = "nf4", .codebook = nf4_codebook(), .bits = 4, .block = 64});
    expect_refused("quantize: of w [2,100], block 2 (elements 128 to 191) has a number that is not finite",
                   [&] {
                     quantizer.quantize(tensor(x, {2, 100}));
                   });
    std::swap(x[130], x[199]);
    expect_refused("block 3 (elements 192 to 199) has", [&] { quantizer.quantize(tensor(x, {200})); });
  }
  expect_refused("f: the scale 0 is given; it must be above 0", [&] {
    Quantizer(context.device,
              {.name = "f", .codebook = absmax_codebook(8), .bits = 8, .range = Range::Given});
  });
  expect_refused("f: a codebook of 255 values for 4 bits", [&] {
    Quantizer(context.device, {.name = "f", .codebook = absmax_codebook(8), .bits = 4});
  });
  expect_refused("f: with a zero point a codebook must begin with 0, not -1", [&] {
    Quantizer(context.device,
              {.name = "f", .codebook = absmax_codebook(8), .bits = 8, .range = Range::ZeroPoint});
  });
  expect_refused("codes of 3 bits", [&] {
    Quantizer(context.device, {.name = "f", .codebook = listed_codebook({0, 1}), .bits = 3})
        .quantize(tensor({1}, {1}));
  });
}

// On meta a quantizer gives the bytes of any size, without data.
TEST(L10_QuantizedOnMeta, BytesOfALargeTensor) {
  Context context("meta");
  const Quantizer quantizer(context.device,
                            {.name = "nf4", .codebook = nf4_codebook(), .bits = 4, .block = 64});
  const Tensor x(context.device, {1 << 20, 1 << 12}, DType::BF16, Kind::Weight, "w");
  EXPECT_EQ(quantizer.quantize(x).bytes(), (int64_t(1) << 31) + (int64_t(1) << 28));
}

}  // namespace
}  // namespace gradus
