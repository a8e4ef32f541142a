// Tensors between host and device: the bits of every dtype.
#include "src/tensor/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "src/tensor/context.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// The bytes on the device, unconverted.
template <class Raw>
std::vector<Raw> raw(const Tensor& x) {
  std::vector<Raw> bits(size_t(x.bytes()) / sizeof(Raw));
  x.device().copy_out(bits.data(), x.in().p, x.bytes());
  return bits;
}
template <class Raw>
Tensor from_raw(Device& device, const std::vector<Raw>& bits, DType dtype) {
  Tensor x(device, {int64_t(bits.size())}, dtype, Kind::Data, "raw");
  device.copy_in(x.set().p, bits.data(), x.bytes());
  return x;
}

struct Rounding {
  uint32_t fp32;
  uint16_t rounded;
};

// To nearest, ties to even, worked out by hand: an fp32's bits and those of the 16-bit number.
const std::vector<Rounding> kToBf16 = {
    {0x3F800000, 0x3F80}, {0x3F807FFF, 0x3F80}, {0x3F808000, 0x3F80}, {0x3F808001, 0x3F81},  // the tie: even
    {0x3F817FFF, 0x3F81}, {0x3F818000, 0x3F82}, {0x3F818001, 0x3F82},                        // from odd: up
    {0xBF808000, 0xBF80}, {0xBF818000, 0xBF82}, {0xBF808001, 0xBF81},                        // by magnitude
    {0x3FFF8000, 0x4000},                                              // a carry into the exponent
    {0x7F7F7FFF, 0x7F7F}, {0x7F7F8000, 0x7F80}, {0x7F7FFFFF, 0x7F80},  // the largest, and past it
    {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80},                        // infinities
    {0x7FC00000, 0x7FC0}, {0x7F800001, 0x7FC0}, {0xFF800001, 0xFFC0},  // NaNs, also of low bits alone
    {0x00008000, 0x0000}, {0x00008001, 0x0001}, {0x00018000, 0x0002},  // subnormal
    {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x007FFFFF, 0x0080}};
const std::vector<Rounding> kToFp16 = {
    {0x3F800000, 0x3C00}, {0x3F800FFF, 0x3C00}, {0x3F801000, 0x3C00},
    {0x3F801001, 0x3C01}, {0x3F802FFF, 0x3C01}, {0x3F803000, 0x3C02},
    {0xBF801000, 0xBC00}, {0xBF803000, 0xBC02}, {0x3FFFF000, 0x4000},  // a carry into the exponent
    {0x477FE000, 0x7BFF}, {0x477FEFFF, 0x7BFF}, {0x477FF000, 0x7C00},  // 65504, below 65520, 65520
    {0x47800000, 0x7C00}, {0x7F800000, 0x7C00}, {0xFF800000, 0xFC00},  // 65536, infinities
    {0x7FC00000, 0x7E00}, {0x7F800001, 0x7E00}, {0xFFC00000, 0xFE00},  // NaNs
    {0x38800000, 0x0400}, {0x387FFFFF, 0x0400}, {0x387FC000, 0x03FF},  // 2^-14, just below, 1023 * 2^-24
    {0x33800000, 0x0001}, {0x33000000, 0x0000}, {0x33000001, 0x0001},  // 2^-24, half of it, and a bit more
    {0x33C00000, 0x0002}, {0x34200000, 0x0002}, {0x34600000, 0x0004},  // 1.5, 2.5 and 3.5 * 2^-24
    {0xB3800000, 0x8001}, {0x80000000, 0x8000}, {0x00000001, 0x0000}};

TEST(L03_Tensor, From32BitsTo16) {
  for (const char* name : devices_with_data()) {
    Context context(name);
    for (const DType dtype : {DType::BF16, DType::F16}) {
      std::vector<float> values;
      std::vector<uint16_t> expected;
      for (const Rounding& r : dtype == DType::BF16 ? kToBf16 : kToFp16) {
        values.push_back(std::bit_cast<float>(r.fp32));
        expected.push_back(r.rounded);
      }
      const Shape shape{int64_t(values.size())};
      EXPECT_EQ(raw<uint16_t>(from_host(context.device, values, shape, dtype, Kind::Data, "x")), expected)
          << name << ", " << name_of(dtype);
      Tensor x(context.device, shape, DType::F32, Kind::Data, "x"), y = empty(x, shape, dtype, "y");
      context.device.copy_in(x.set().p, values.data(), x.bytes());
      be(x).cast(ctx(x, {}), x.numel(), x.in(), y.set());
      EXPECT_EQ(raw<uint16_t>(y), expected) << name << ", cast to " << name_of(dtype);
    }
  }
}

TEST(L03_Tensor, From16BitsTo32) {
  const std::vector<std::pair<uint16_t, double>> bf16_values = {
      {0x3F80, 1},        {0x3EAB, 0.333984375}, {0xC049, -3.140625}, {0x0080, 0x1p-126},
      {0x0001, 0x1p-133}, {0x7F7F, 0x1.FEp127},  {0xFF80, -INFINITY}};
  const std::vector<std::pair<uint16_t, double>> fp16_values = {
      {0x3C00, 1},         {0x3555, 0.333251953125}, {0x7BFF, 65504},
      {0xC248, -3.140625}, {0x0400, 0x1p-14},        {0x03FF, 1023 * 0x1p-24},
      {0x0001, 0x1p-24},   {0x8200, -0x1p-15},       {0xFC00, -INFINITY}};
  for (const char* name : devices_with_data()) {
    Context context(name);
    for (const DType dtype : {DType::BF16, DType::F16}) {
      std::vector<uint16_t> bits;
      std::vector<double> expected;
      for (const auto& [b, v] : dtype == DType::BF16 ? bf16_values : fp16_values)
        bits.push_back(b), expected.push_back(v);
      const Tensor x = from_raw(context.device, bits, dtype);
      EXPECT_EQ(to_host<double>(x), expected) << name << ", " << name_of(dtype);
      EXPECT_EQ(to_host<float>(x), std::vector<float>(expected.begin(), expected.end())) << name;
      EXPECT_EQ(item(x.narrow(1, 1)), expected[1]) << name;
    }
    EXPECT_TRUE(std::isnan(item(from_raw<uint16_t>(context.device, {0x7F81}, DType::BF16)))) << name;
    EXPECT_TRUE(std::isnan(item(from_raw<uint16_t>(context.device, {0x7C01}, DType::F16)))) << name;
  }
}

TEST(L02_Tensor, From64BitsTo32AndBack) {
  for (const char* name : devices_with_data()) {
    Context context(name);
    const std::vector<double> values = {1 + 0x1p-24, 1 + 0x1p-24 + 0x1p-40, 1 + 0x3p-24, 0.1, -1e300};
    const Tensor wide = from_host(context.device, values, {5}, DType::F64, Kind::Data, "x");
    EXPECT_EQ(to_host<double>(wide), values) << name << ": nothing may be lost";
    EXPECT_EQ(raw<double>(wide), values) << name;
    const Tensor x = from_host(context.device, values, {5}, DType::F32, Kind::Data, "x");
    EXPECT_EQ(raw<uint32_t>(x),
              (std::vector<uint32_t>{0x3F800000, 0x3F800001, 0x3F800002, 0x3DCCCCCD, 0xFF800000}));
    EXPECT_EQ(to_host<float>(x)[3], 0.1f);
    const Tensor from_float =
        from_host(context.device, std::vector<float>{0.1f}, {}, DType::F64, Kind::Data, "x");
    EXPECT_EQ(item(from_float), double(0.1f)) << name;
  }
}

TEST(L02_Tensor, IntegersKeepTheirBits) {
  for (const char* name : devices_with_data()) {
    Context context(name);
    const std::vector<int32_t> small = {-128, -1, 0, 1, 127}, bytes = {0, 1, 127, 128, 255},
                               wide = {INT32_MIN, -1, 0, 256, INT32_MAX};
    const auto made = [&](const std::vector<int32_t>& values, DType t) {
      return from_host(context.device, values, {5}, t, Kind::Data, "ids");
    };
    const Tensor i8 = made(small, DType::I8), u8 = made(bytes, DType::U8), i32 = made(wide, DType::I32),
                 i64 = made(wide, DType::I64);
    EXPECT_EQ(raw<int8_t>(i8), (std::vector<int8_t>{-128, -1, 0, 1, 127})) << name;
    EXPECT_EQ(raw<uint8_t>(u8), (std::vector<uint8_t>{0, 1, 127, 128, 255})) << name;
    EXPECT_EQ(raw<int32_t>(i32), wide) << name;
    EXPECT_EQ(raw<int64_t>(i64), std::vector<int64_t>(wide.begin(), wide.end())) << name;
    EXPECT_EQ(to_host<int32_t>(i8), small) << name;
    EXPECT_EQ(to_host<int32_t>(u8), bytes) << name;
    EXPECT_EQ(to_host<int32_t>(i32), wide) << name;
    EXPECT_EQ(to_host<int32_t>(i64), wide) << name;
    EXPECT_EQ(item(u8.narrow(4, 1)), 255) << name;
    EXPECT_EQ(item(i64.narrow(0, 1)), -2147483648.0) << name;
  }
}

TEST(L02_Tensor, IsOfTheKindAndNameThatItIsMadeWith) {
  Context context("cpu");
  for (int k = 0; k < kKinds; ++k) {
    const Tensor plain(context.device, {2}, DType::BF16, Kind(k), "plain"),
        filled = from_host<double>(context.device, {1, 2}, {2}, DType::BF16, Kind(k), "filled");
    for (const auto& [x, name] : {std::pair(plain, "plain"), {filled, "filled"}}) {
      EXPECT_EQ(x.storage().kind(), Kind(k));
      EXPECT_EQ(x.storage().name(), name);
      EXPECT_EQ(x.dtype(), DType::BF16);
    }
  }
}

TEST(L02_Tensor, TheHistorySaysItsNameShapeAndKindAtEveryRank) {
  Context context("meta");
  context.device.allocator().keep_history();
  Shape shape;
  for (int rank = 0; rank <= Shape::kMaxRank; ++rank) {
    const std::string name = "rank " + std::to_string(rank);
    const Tensor x(context.device, shape, DType::F16, Kind::Comm, name);
    const MemoryEvent& e = context.device.allocator().history().back();
    EXPECT_EQ(e.shape, shape);
    EXPECT_EQ(e.name, name);
    EXPECT_EQ(e.kind, Kind::Comm);
    EXPECT_EQ(e.requested, 2 * shape.numel());
    if (rank < Shape::kMaxRank) shape.push_back(rank + 2);
  }
}

TEST(L02_Tensor, MetaReadsAsNanAndMinusOne) {
  Context context("meta");
  for (const DType t : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    const Tensor x = from_host(context.device, std::vector<double>{1, 2}, {2}, t, Kind::Data, "x");
    for (const double v : to_host<double>(x)) EXPECT_TRUE(std::isnan(v)) << name_of(t);
    EXPECT_TRUE(std::isnan(item(x.narrow(0, 1)))) << name_of(t);
  }
  for (const DType t : {DType::I64, DType::I32, DType::I8})
    EXPECT_EQ(to_host<int32_t>(Tensor(context.device, {2}, t, Kind::Data, "x")),
              (std::vector<int32_t>{-1, -1}));
}

TEST(L02_Tensor, HostCopiesRefuseOtherSizes) {
  Context context("cpu");
  Tensor x(context.device, {2, 3}, DType::F32, Kind::Data, "x");
  for (const size_t n : {0u, 5u, 7u})
    expect_refused("copy: " + std::to_string(n) + " values for a tensor [2,3]",
                   [&] { copy_from_host(x, std::vector<double>(n)); });
  const std::vector<double> fine{1 + 0x1p-40};  // fp32 and fp16 have no such number
  EXPECT_EQ(item(from_host(context.device, fine, {}, DType::F64, Kind::Data, "x")), fine[0]);
  expect_refused("item: the tensor is [2,3]", [&] { item(x); });
  expect_refused("item: the tensor is [0,3]", [&] { item(x.narrow(0, 0)); });
  EXPECT_EQ(item(from_host(context.device, std::vector<double>{7}, {1, 1, 1}, DType::F32, Kind::Data, "x")),
            7);
  for (const auto& read :
       std::vector<std::function<void()>>{[] { Tensor().in(); }, [] { to_host<double>(Tensor()); },
                                          [] { Tensor().device(); }, [] { Tensor().set(); }})
    expect_refused("undefined tensor", read);
  EXPECT_FALSE(Tensor().defined());
  expect_refused("wte: [1152921504606846976] of fp64 has more bytes",
                 [&] { Tensor(context.device, {int64_t(1) << 60}, DType::F64, Kind::Weight, "wte"); });
  for (const auto& [size, t] : {std::pair(61, DType::F64), {62, DType::F64}, {62, DType::F32}})
    expect_refused(
        "more bytes than an int64 can count",  // 2^64 and more, which come round to 0
        [&, size = size, t = t] { Tensor(context.device, {int64_t(1) << size}, t, Kind::Weight, "wte"); });
}

}  // namespace
}  // namespace gradus
