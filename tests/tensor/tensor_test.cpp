// Tensors between host and device: the bits of every dtype.
#include "src/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>

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

// kernels/dtype_test tests how numbers are rounded; here, that they are rounded on the way to the device.
TEST(L03_Tensor, NumbersOf16BitsGoThereAndBack) {
  struct Row {
    DType dtype;
    double host;
    uint16_t bits;
    double back;
  };
  const Row rows[] = {
      {DType::BF16, 1 / 3.0, 0x3EAB, 0.333984375},   {DType::BF16, 1 + 0x3p-8, 0x3F82, 1 + 0x1p-6},
      {DType::BF16, 0x1p-133, 0x0001, 0x1p-133},     {DType::BF16, -0x1.FFp127, 0xFF80, -INFINITY},
      {DType::F16, 1 / 3.0, 0x3555, 0.333251953125}, {DType::F16, 1 + 0x3p-11, 0x3C02, 1 + 0x1p-9},
      {DType::F16, -0x1p-24, 0x8001, -0x1p-24},      {DType::F16, 65520, 0x7C00, INFINITY}};
  for (const char* name : devices_with_data()) {
    Context context(name);
    for (const Row& r : rows) {
      const std::vector<double> values(3, r.host);
      const std::vector<float> floats(3, float(r.host));
      for (const Tensor& x : {from_host(context.device, values, {3}, r.dtype, Kind::Data, "x"),
                              from_host(context.device, floats, {3}, r.dtype, Kind::Data, "x")}) {
        EXPECT_EQ(raw<uint16_t>(x), std::vector<uint16_t>(3, r.bits)) << name << ": " << r.host;
        EXPECT_EQ(to_host<double>(x), std::vector<double>(3, r.back)) << name << ": " << r.host;
        EXPECT_EQ(to_host<float>(x), std::vector<float>(3, float(r.back))) << name << ": " << r.host;
        EXPECT_EQ(item(x.narrow(1, 1)), r.back) << name << ": " << r.host;
      }
    }
    for (const DType t : {DType::BF16, DType::F16})
      EXPECT_TRUE(std::isnan(item(from_host<double>(context.device, {NAN}, {}, t, Kind::Data, "x")))) << name;
  }
}

TEST(L02_Tensor, From64BitsTo32AndBack) {
  for (const char* name : devices_with_data()) {
    Context context(name);
    const std::vector<double> values = {1 + 0x1p-24, 1 + 0x1p-24 + 0x1p-40, 1 + 0x3p-24, 0.1, -1e300};
    const Tensor wide = from_host(context.device, values, {5}, DType::F64, Kind::Data, "x");
    EXPECT_EQ(to_host<double>(wide), values) << name << ": fp64 must keep all bits";
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
  copy_from_host(x, std::vector<double>(6, 0.5));
  const uint32_t version = x.storage().version;
  for (const size_t n : {0u, 5u, 7u})
    expect_refused("copy: " + std::to_string(n) + " values for a tensor [2,3]",
                   [&] { copy_from_host(x, std::vector<double>(n)); });
  EXPECT_EQ(x.storage().version, version);
  EXPECT_EQ(to_host<double>(x), std::vector<double>(6, 0.5)) << "nothing was written";
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
        "more bytes than an int64 can count",  // 2^64 and more, which would wrap around to 0
        [&, size = size, t = t] { Tensor(context.device, {int64_t(1) << size}, t, Kind::Weight, "wte"); });
}

}  // namespace
}  // namespace gradus
