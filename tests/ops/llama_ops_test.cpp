// rmsnorm, swiglu, and rotary positions of grouped heads: on numbers computed by hand, compared with ops that
// compute the same, and what they refuse. (Compared with finite differences: gradients_test.cpp.)
#include <gtest/gtest.h>

#include <cmath>

#include "src/core/rng.h"
#include "src/ops/ops.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
struct L21_Ops : TapeTest {
  Tensor tensor(const Values& values, const Shape& shape) {
    return from_host(context.device, values, shape, DType::F64, Kind::Data, "x");
  }
  Tensor of(const Shape& shape) { return Tensor(context.device, shape, DType::F32, Kind::Data, "x"); }
  void expect(const Tensor& y, const Shape& shape, const Values& values, double error) {
    EXPECT_EQ(y.shape(), shape);
    const Values got = to_host<double>(y);
    ASSERT_EQ(got.size(), values.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], values[i], error) << "element " << i;
  }
};

// Rows whose mean square is 25/2 and 9.9e-4, to which the default epsilon adds 1e-5. The kernel gets epsilon
// in fp32, so the second root has an error of 1e-5 / 1e-3 / 2 epsilons of fp32: 3e-10, times 14.
TEST_F(L21_Ops, RmsNormDividesByTheRootMeanSquare) {
  const Tensor x = tensor({3, -4, 0, std::sqrt(2 * 9.9e-4)}, {2, 1, 2}), gain = tensor({2, 10}, {2});
  const double first = 1 / std::sqrt(12.5 + 1e-5), second = std::sqrt(2 * 9.9e-4 / 1e-3);
  expect(rmsnorm(x, gain), {2, 1, 2}, {6 * first, -40 * first, 0, 10 * second}, 1e-8);
  const double larger = 1 / std::sqrt(12.5 + 3.5);
  expect(rmsnorm(tensor({3, -4}, {2}), gain, 3.5), {2}, {6 * larger, -40 * larger}, 1e-9);
}
// With a negligible epsilon, y does not depend on the size of a row, so the gradient is orthogonal to the
// row.
TEST_F(L21_Ops, RmsNormDoesNotSeeTheSizeOfARow) {
  const Values row{0.5, -2, 1, 0.25, 3};
  const Tensor gain = tensor({1, 2, 3, 4, 5}, {5});
  const Values y = to_host<double>(rmsnorm(tensor(row, {5}), gain, 1e-30));
  Values large;
  for (const double v : row) large.push_back(1000 * v);
  expect(rmsnorm(tensor(large, {5}), gain, 1e-30), {5}, y, 1e-12);
  Tensor x = tensor(row, {5});
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  tape.backward(rmsnorm(x, gain, 1e-30), tensor({1, -1, 2, 0.5, 1}, {5}));
  const Values dx = to_host<double>(leaf.grad);
  double dot = 0;
  for (size_t i = 0; i < row.size(); ++i) dot += dx[i] * row[i];
  EXPECT_NEAR(dot, 0, 1e-12);
}

TEST_F(L21_Ops, SwiGluIsSiluOfTheFirstHalfTimesTheSecond) {
  const double ln3 = std::log(3);  // 1 / (1 + e^-ln 3) = 3/4
  expect(swiglu(tensor({ln3, -ln3, 2, 8, 0, 1, 5, -1}, {2, 1, 4})), {2, 1, 2},
         {1.5 * ln3, -2 * ln3, 0, -1 / (1 + std::exp(-1))}, 1e-14);
  expect(swiglu(tensor({ln3, 4}, {2})), {1}, {3 * ln3}, 1e-14);
  expect(swiglu(tensor({}, {3, 0})), {3, 0}, {}, 0);
}

// Each head of q and k is rotated as if it were the only one, and v does not change: bitwise equal.
TEST_F(L21_Ops, RotaryTurnsGroupedHeadsAsItTurnsEach) {
  constexpr int64_t D = 6, T = 5;
  for (const auto& [H, KV] : {std::pair<int64_t, int64_t>(6, 2), {3, 1}, {2, 2}}) {
    const int64_t width = (H + 2 * KV) * D;
    Rng rng(21, uint64_t(H));
    Values values;
    for (int64_t i = 0; i < 2 * T * width; ++i) values.push_back(rng.normal());
    const Tensor qkv = tensor(values, {2, T, width});
    std::vector<Tensor> parts;
    for (int64_t h = 0; h < H + KV; ++h) {  // one head as q, k and v; only its q is used
      const Tensor head = slice(qkv, h * D, D);
      parts.push_back(slice(rotary(concatenate({head, head, head}), 1, 4, 3, 500.0), 0, D));
    }
    parts.push_back(slice(qkv, (H + KV) * D, KV * D));
    expect(rotary(qkv, {H, KV}, 4, 3, 500.0), {2, T, width}, to_host<double>(concatenate(parts)), 0);
  }
}
// The second of two pairs is rotated base^(-1/2) times as fast as the first.
TEST_F(L21_Ops, RotaryTurnsThePairsByPowersOfTheBase) {
  for (const double base : {10000.0, 4.0}) {
    Values values(3 * 12, 1.0), expected = values;
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t c = 0; c < 8; ++c) {
        const double angle = double(t) * (c % 2 == 0 ? 1 : 1 / std::sqrt(base));
        expected[t * 12 + c] = std::cos(angle) + (c % 4 < 2 ? -1 : 1) * std::sin(angle);
      }
    const Tensor x = tensor(values, {1, 3, 12});
    expect(base == 4 ? rotary(x, 1, 4, 0, base) : rotary(x, 1, 4), {1, 3, 12}, expected, 1e-12);
  }
}

TEST_F(L21_Ops, RefuseWhatIsNotOfTheirShape) {
  rmsnorm(of({2, 5}), of({5}));
  for (const Shape& bad : {Shape{4}, Shape{1, 5}, Shape{5, 1}, Shape{}})
    expect_refused("rmsnorm: x is [2,5], gamma is ", [&] { rmsnorm(of({2, 5}), of(bad)); });
  for (const Shape& bad : {Shape{2, 5}, Shape{1}, Shape{}})
    expect_refused("swiglu: x is [", [&] { swiglu(of(bad)); });
  rotary(of({1, 2, 16}), {4, 2}, 2);
  for (const Heads heads : {Heads(4, 0), Heads(4, 3), Heads(2, 4), Heads(0, 1), Heads(-4, -2)})
    expect_refused("rotary: qkv is [1,2,16] with " + std::to_string(heads.q) + " heads of queries and " +
                       std::to_string(heads.kv) + " of keys and values; the first must be a multiple",
                   [&] {
                     rotary(of({1, 2, 16}), heads, 2);
                   });
  expect_refused(
      "rotary: qkv is [1,2,16] with 3 heads of queries and 1 of keys and values; it must be (B, T, ", [&] {
        rotary(of({1, 2, 16}), {3, 1}, 2);
      });
  expect_refused("rotary: the base is 1; it must be more than 1", [&] {
    rotary(of({1, 2, 16}), {4, 2}, 2, 0, 1);
  });
}

}  // namespace
}  // namespace gradus
