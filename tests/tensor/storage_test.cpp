// Views of a tensor, and the storage that they share.
#include "src/tensor/tensor.h"

#include <gtest/gtest.h>

#include "src/tensor/call.h"
#include "src/tensor/context.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

std::vector<double> counted(int64_t n) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(double(i));
  return values;
}

TEST(L02_TensorViews, NarrowIsRowsOfRows) {
  Context context("cpu");
  for (const DType t : {DType::F64, DType::F32, DType::F16}) {
    Tensor x = from_host(context.device, counted(24), {6, 2, 2}, t, Kind::Data, "x");
    x.slot.id = 9;
    EXPECT_EQ(to_host<double>(x.narrow(0, 6)), counted(24));
    const Tensor part = x.narrow(1, 4), inner = part.narrow(2, 2), last = x.narrow(5, 1);
    EXPECT_EQ(part.shape(), (Shape{4, 2, 2}));
    EXPECT_EQ(part.bytes(), 16 * size_of(t));
    EXPECT_EQ(to_host<double>(inner), (std::vector<double>{12, 13, 14, 15, 16, 17, 18, 19}));
    EXPECT_EQ(to_host<double>(last), (std::vector<double>{20, 21, 22, 23}));
    EXPECT_EQ(to_host<double>(part.reshape({8, 2}).narrow(7, 1)), (std::vector<double>{18, 19}));
    EXPECT_EQ(x.narrow(6, 0).numel(), 0);
    EXPECT_FALSE(part.slot.wanted()) << "a part of a tensor has no gradient";
    for (const auto& [begin, count] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 7}, {6, 1}, {7, 0}, {-1, 2}, {2, -1}})
      expect_refused("do not exist in [6,2,2]",
                     [&, begin = begin, count = count] { x.narrow(begin, count); });
    expect_refused("narrow: 2 rows from row 3 do not exist in [4,2,2]", [&] { part.narrow(3, 2); });
    expect_refused("do not exist in [6,2,2]", [&] { x.narrow(1, INT64_MAX); });
  }
  EXPECT_NE(refusal([&] { Tensor(context.device, {}, DType::F32, Kind::Data, "x").narrow(0, 1); }), "");
}

TEST(L02_TensorViews, WritingAPartWritesNothingElse) {
  for (const char* name : devices_with_data()) {
    Context context(name);
    Tensor x = from_host(context.device, std::vector<double>(12, 5), {4, 3}, DType::BF16, Kind::Data, "x");
    Tensor inner = x.narrow(1, 3).narrow(1, 1);
    copy_from_host(inner, {1, 2, 3});
    EXPECT_EQ(to_host<double>(x), (std::vector<double>{5, 5, 5, 5, 5, 5, 1, 2, 3, 5, 5, 5})) << name;
    be(x).fill(ctx(x, {}), 3, inner.set(), 7);
    EXPECT_EQ(to_host<double>(x.narrow(2, 2)), (std::vector<double>{7, 7, 7, 5, 5, 5})) << name;
  }
}

TEST(L02_TensorViews, ReshapeKeepsElementsSlotAndStorage) {
  Context context("cpu");
  Tensor x = from_host(context.device, counted(12), {3, 4}, DType::F32, Kind::Data, "x");
  x.slot.id = 9;
  const Tensor y = x.reshape({2, 3, 2});
  EXPECT_EQ(y.slot.id, 9);
  EXPECT_EQ(&y.storage(), &x.storage());
  EXPECT_EQ(to_host<double>(y), counted(12));
  EXPECT_EQ(x.shape(), (Shape{3, 4})) << "reshape must not change the tensor itself";
  expect_refused("reshape: [3,4] has 12 elements, [3,5] has 15", [&] { x.reshape({3, 5}); });
  expect_refused("[11] has 11", [&] { x.reshape({11}); });
  EXPECT_EQ(y.rows().rows, 6);
  EXPECT_EQ(y.rows().cols, 2);
  EXPECT_EQ(x.reshape({12}).rows().rows, 1);
  EXPECT_EQ(x.narrow(0, 1).reshape({4}).last(), 4);
  const Tensor scalar = x.reshape({12}).narrow(3, 1).reshape({});
  EXPECT_EQ(scalar.rows().rows, 1);
  EXPECT_EQ(scalar.last(), 1);
  EXPECT_EQ(item(scalar), 3);
}

TEST(L02_TensorStorage, EveryWriteIsCountedNoReadIs) {
  Context context("cpu");
  Tensor x = from_host(context.device, counted(4), {4}, DType::F32, Kind::Data, "x"), copy = x,
         part = x.narrow(1, 2), other = x.reshape({2, 2});
  const uint32_t before = x.storage().version;
  x.in(), part.in(), to_host<double>(x), item(x.narrow(0, 1));
  part.reshape({2, 1}), part.narrow(1, 1).reshape({1, 1}), part.detach(), other.narrow(1, 1);
  EXPECT_EQ(x.storage().version, before);
  x.set(), copy.add(), part.out(Write::Set), copy_from_host(other, counted(4));
  EXPECT_EQ(x.storage().version, before + 4) << "writes count through every view";
  EXPECT_EQ(x.set().w, Write::Set);
  EXPECT_EQ(x.add().w, Write::Add);
  EXPECT_EQ(x.out(Write::Add).w, Write::Add);
  EXPECT_EQ(x.set().t, DType::F32);
}

TEST(L02_TensorStorage, TheLastViewKeepsTheBlockAndItsKind) {
  Context context("cpu");
  const Meter& meter = context.device.meter();
  for (int k = 0; k < kKinds; ++k) {
    const int64_t before = meter.now()[Kind(k)];
    Tensor part;
    {
      const Tensor x = from_host(context.device, counted(100), {10, 10}, DType::F16, Kind(k), "a name");
      EXPECT_EQ(meter.now()[Kind(k)], before + 200) << name_of(Kind(k));
      EXPECT_EQ(x.storage().name(), "a name");
      EXPECT_EQ(x.storage().kind(), Kind(k));
      EXPECT_FALSE(x.shares_storage());
      part = x.narrow(9, 1);
      EXPECT_TRUE(x.shares_storage() && part.shares_storage());
    }
    EXPECT_FALSE(part.shares_storage());
    EXPECT_EQ(meter.now()[Kind(k)], before + 200) << "a part keeps the whole block";
    const int64_t activations = meter.now()[Kind::Activation];
    part.storage().set_kind(Kind::Activation);
    if (Kind(k) != Kind::Activation) {
      EXPECT_EQ(meter.now()[Kind(k)], before);
      EXPECT_EQ(meter.now()[Kind::Activation], activations + 200);
    }
    part = {};
    EXPECT_EQ(meter.now()[Kind::Activation], k == int(Kind::Activation) ? before : activations);
  }
}

TEST(L02_TensorStorage, NewTensorsAreTemporaryAndLikeTheirModelWhateverIsCurrent) {
  Context context("cpu");
  const Tensor like(context.device, {2, 3}, DType::BF16, Kind::Weight, "like");
  Context other("meta");
  const Usage before = other.device.meter().now();
  const Tensor a = empty_like(like, "a"), b = empty(like, {5}, "b"), c = empty(like, {7}, DType::F32, "c");
  EXPECT_EQ(a.shape(), (Shape{2, 3}));
  EXPECT_EQ(a.dtype(), DType::BF16);
  EXPECT_EQ(b.dtype(), DType::BF16);
  EXPECT_EQ(b.shape(), Shape{5});
  EXPECT_EQ(c.dtype(), DType::F32);
  EXPECT_EQ(c.storage().name(), "c");
  for (const Tensor& t : {a, b, c}) EXPECT_EQ(&t.device(), &context.device);
  EXPECT_EQ(context.device.meter().now()[Kind::Temporary], 12 + 10 + 28);
  EXPECT_EQ(other.device.meter().now(), before);
  EXPECT_FALSE(a.slot.wanted());
  EXPECT_EQ(statistics_dtype(DType::F64), DType::F64);
  for (const DType t : {DType::F32, DType::BF16, DType::F16}) EXPECT_EQ(statistics_dtype(t), DType::F32);
}

TEST(L02_TensorViews, OfNothing) {
  Context context("cpu");
  const Tensor none = from_host(context.device, counted(0), {0, 3}, DType::F32, Kind::Data, "none");
  EXPECT_EQ(none.numel(), 0);
  EXPECT_EQ(none.bytes(), 0);
  EXPECT_EQ(none.rows().rows, 0);
  EXPECT_EQ(none.rows().cols, 3);
  EXPECT_TRUE(to_host<double>(none).empty());
  EXPECT_EQ(none.narrow(0, 0).shape(), (Shape{0, 3}));
  EXPECT_EQ(none.reshape({5, 0}).numel(), 0);
  expect_refused("narrow: 1 rows from row 0 do not exist in [0,3]", [&] { none.narrow(0, 1); });
  const Tensor undefined;
  EXPECT_FALSE(undefined.defined() || undefined.shares_storage() || undefined.slot.wanted());
  EXPECT_EQ(undefined.dtype(), DType::F32);
  EXPECT_EQ(undefined.slot.id, 0);
  EXPECT_EQ(undefined.slot.leaf, nullptr);
}

TEST(L02_TensorStorage, BytesAreThoseAskedForAndADetachedTensorSharesThem) {
  Context context("cpu");
  for (const DType t : {DType::F64, DType::I64, DType::F32, DType::I32, DType::BF16, DType::U8}) {
    Tensor x(context.device, {3, 7}, t, Kind::Comm, "x");
    EXPECT_EQ(x.bytes(), 21 * size_of(t));
    EXPECT_EQ(x.storage().bytes(), 21 * size_of(t));
    EXPECT_EQ(x.narrow(1, 1).storage().bytes(), 21 * size_of(t)) << "the bytes of the whole storage";
    EXPECT_EQ(x.narrow(1, 1).bytes(), 7 * size_of(t));
    x.slot.id = 9;
    const Tensor detached = x.narrow(0, 3).reshape({7, 3}).detach();
    EXPECT_EQ(&detached.storage(), &x.storage());
    EXPECT_EQ(detached.shape(), (Shape{7, 3}));
    EXPECT_EQ(detached.dtype(), t);
    EXPECT_EQ(x.slot.id, 9);
  }
}

}  // namespace
}  // namespace gradus
