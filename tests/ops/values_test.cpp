// The results of each op for numbers that can be computed by hand, with its default arguments; and the shapes
// and dtypes of the results.
#include <gtest/gtest.h>

#include <cmath>

#include "src/ops/ops.h"
#include "src/tensor/context.h"
#include "tests/devices.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
struct L03_OpValues : ::testing::Test {
  Context context{"cpu", 5};
  Tensor tensor(const Values& values, const Shape& shape, DType t = DType::F64) {
    return from_host(context.device, values, shape, t, Kind::Data, "x");
  }
  void expect(const Tensor& y, const Shape& shape, const Values& values, double error = 0) {
    EXPECT_EQ(y.shape(), shape);
    const Values got = to_host<double>(y);
    ASSERT_EQ(got.size(), values.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], values[i], error) << "element " << i;
  }
};

TEST_F(L03_OpValues, OfElements) {
  expect(add(tensor({1, -2}, {2}), tensor({0.5, 0.25}, {2})), {2}, {1.5, -1.75});
  expect(multiply(tensor({1, -2}, {2}), tensor({0.5, 0.25}, {2})), {2}, {0.5, -0.5});
  expect(scale(tensor({1, -2, 0}, {3, 1}), -2.5), {3, 1}, {-2.5, 5, 0});
  expect(tanh(tensor({0, 1, -1}, {3})), {3}, {0, 0.7615941559557649, -0.7615941559557649}, 1e-15);
  expect(gelu(tensor({0, 1, -1}, {3})), {3}, {0, 0.8411919906082768, -0.1588080093917232}, 1e-6);
  expect(gelu_erf(tensor({0, 1, -1}, {3})), {3}, {0, 0.8413447460685429, -0.15865525393145707}, 1e-12);
}

TEST_F(L03_OpValues, OfRows) {
  const double ln3 = std::log(3);
  expect(softmax(tensor({ln3, 0, 5, 5}, {2, 1, 2})), {2, 1, 2}, {0.75, 0.25, 0.5, 0.5}, 1e-15);
  expect(softmax(tensor({7}, {1})), {1}, {1});
  // mean 1e-3, variance 1e-6: with the default epsilon, 1e-5, the rows are +-1e-3 / sqrt(1.1e-5)
  const Tensor x = tensor({0, 2e-3}, {1, 2}), gain = tensor({2, 1}, {2}), bias = tensor({0, 10}, {2});
  expect(layernorm(x, gain, bias), {1, 2}, {-2 * 0.30151134457776363, 10.301511344577764}, 1e-7);
  expect(layernorm(x, gain, bias, 3e-6), {1, 2}, {-1, 10.5}, 1e-7);
  const Tensor w = tensor({1, 2, 3, 4, 5, 6}, {3, 2}), b = tensor({10, 20, 30}, {3});
  expect(linear(tensor({1, -1, 2, 0}, {2, 1, 2}), w), {2, 1, 3}, {-1, -1, -1, 2, 6, 10});
  expect(linear(tensor({1, -1}, {2}), w, b), {3}, {9, 19, 29});
}

TEST_F(L03_OpValues, OfTokens) {
  const Tensor table = tensor({0, 1, 10, 11, 20, 21}, {3, 2});
  expect(embedding(table, ids_of({2, 0, 2}, {3, 1})), {3, 1, 2}, {20, 21, 0, 1, 20, 21});
  expect(embedding(table, ids_of({1}, {})), {2}, {10, 11});
  expect(add_positions(tensor({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}), table), {2, 2, 2},
         {1, 3, 13, 15, 5, 7, 17, 19});
  const Tensor x = tensor({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  expect(select_token(x, 0), {2, 2}, {1, 2, 5, 6});
  expect(select_token(x, 1), {2, 2}, {3, 4, 7, 8});
}

TEST_F(L03_OpValues, OfParts) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6, 7, 8}, {2, 1, 4});
  expect(slice(x, 0, 4), {2, 1, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  expect(slice(x, 1, 2), {2, 1, 2}, {2, 3, 6, 7});
  expect(slice(x, 4, 0), {2, 1, 0}, {});
  const std::vector<Tensor> parts = split(x, {1, 0, 3});
  ASSERT_EQ(parts.size(), 3u);
  expect(parts[0], {2, 1, 1}, {1, 5});
  expect(parts[1], {2, 1, 0}, {});
  expect(parts[2], {2, 1, 3}, {2, 3, 4, 6, 7, 8});
  expect(concatenate({parts[2], parts[1], parts[0], parts[0]}), {2, 1, 5}, {2, 3, 4, 1, 1, 6, 7, 8, 5, 5});
  expect(concatenate({tensor({1, 2}, {2})}), {2}, {1, 2});
}

TEST_F(L03_OpValues, AShorterTextAddsNothingToThePositionsAfterIt) {
  Tensor table = tensor({0, 0, 0}, {3, 1});
  Leaf leaf;
  attach(table, leaf, "wpe");
  const auto pass = [&](int64_t B, int64_t T) {
    const Tensor x = tensor(Values(B * T, 1), {B, T, 1});
    Tape().backward(add_positions(x, table), x);
    return to_host<double>(leaf.grad);
  };
  { const Tensor old = tensor({NAN, NAN, NAN}, {3, 1}); }  // the gradient reuses this memory
  EXPECT_EQ(pass(2, 2), (Values{2, 2, 0}));
  EXPECT_EQ(pass(1, 1), (Values{3, 2, 0}));
  EXPECT_EQ(pass(1, 3), (Values{4, 3, 1}));
  leaf.zero();
  EXPECT_EQ(pass(3, 1), (Values{3, 0, 0}));
}

TEST_F(L03_OpValues, OfTheLossWhichIsAMeanOverRows) {
  const double ln3 = std::log(3), loss = (std::log(2) + std::log(4)) / 2;
  for (const auto& [t, stats] :
       {std::pair(DType::F64, DType::F64), {DType::F32, DType::F32}, {DType::BF16, DType::F32}}) {
    const Tensor y = cross_entropy(tensor({5, 5, ln3, 0}, {1, 2, 2}, t), ids_of({0, 1}, {1, 2}));
    expect(y, {}, {loss}, t == DType::F64 ? 1e-14 : t == DType::F32 ? 1e-6 : 2e-3);
    EXPECT_EQ(y.dtype(), stats) << name_of(t);
  }
}

// Heads of 4 dimensions, one for each value: scores are q k^T / 2. The first head looks at ln 3 and 0.
TEST_F(L03_OpValues, OfAttention) {
  const double k = std::log(3);
  Values qkv(2 * 24, 0.0);
  for (int t = 0; t < 2; ++t) {
    qkv[t * 24] = 2;  // q of head 0
    for (int c = 0; c < 8; ++c) qkv[t * 24 + 16 + c] = 10 * t + c;
  }
  qkv[8] = k;  // the key of token 0
  const Values first{0, 1, 2, 3, 4, 5, 6, 7};
  Values mean;  // 3/4 and 1/4 in head 0, 1/2 each in head 1
  for (int c = 0; c < 8; ++c) mean.push_back(c + (c < 4 ? 2.5 : 5));
  for (const auto attention : {attention_plain, attention_flash})
    for (const Mask mask : {Mask::Causal, Mask::None}) {
      Values want = mask == Mask::Causal ? first : mean;
      want.insert(want.end(), mean.begin(), mean.end());
      expect(attention(tensor(qkv, {1, 2, 24}), 2, mask, 0, 0), {1, 2, 8}, want, 1e-6);
    }
}

// Two heads of 4 dimensions; the first 2 are rotated, by 1 radian per position.
TEST_F(L03_OpValues, OfRotaryPositions) {
  Values qkv(2 * 24, 7.0);
  for (int t = 0; t < 2; ++t)
    for (int head = 0; head < 4; ++head) qkv[t * 24 + head * 4] = 1, qkv[t * 24 + head * 4 + 1] = 0;
  for (const int64_t from : {0, 5}) {
    Values want = qkv;
    for (int t = 0; t < 2; ++t)
      for (int head = 0; head < 4; ++head) {
        want[t * 24 + head * 4] = std::cos(double(from + t));
        want[t * 24 + head * 4 + 1] = std::sin(double(from + t));
      }
    const Tensor x = tensor(qkv, {1, 2, 24});
    expect(from == 0 ? rotary(x, 2, 2) : rotary(x, 2, 2, from), {1, 2, 24}, want, 1e-6);
  }
}

TEST_F(L03_OpValues, DropoutKeepsOrDoublesAndReturnsXItselfWhereNothingIsDropped) {
  const Tensor x = tensor(Values(400, 3), {4, 100});
  EXPECT_EQ(&dropout(x, 0).storage(), &x.storage());
  EXPECT_EQ(context.dropout_ordinal(), 0u) << "no random op";
  {
    const Evaluation evaluation;
    EXPECT_EQ(&dropout(x, 0.75).storage(), &x.storage());
    const Tensor qkv = tensor(Values(12, 1), {1, 2, 6});
    attention_plain(qkv, 1, Mask::None, 0.75);
    EXPECT_EQ(context.dropout_ordinal(), 0u);
    const Tape tape;  // also while a tape records
    EXPECT_EQ(&dropout(x, 0.75).storage(), &x.storage());
    for (const auto& attention : {attention_plain, attention_flash})
      for (const double y : to_host<double>(attention(qkv, 1, Mask::None, 0.75, 0))) EXPECT_EQ(y, 1);
    EXPECT_EQ(context.dropout_ordinal(), 0u);
  }
  int kept = 0;
  for (const double v : to_host<double>(dropout(x, 0.75))) {
    EXPECT_TRUE(v == 0 || v == 12) << v;
    kept += v == 12;
  }
  EXPECT_NEAR(kept, 100, 5 * std::sqrt(400 * 0.25 * 0.75));
  EXPECT_EQ(context.dropout_ordinal(), 1u);
  attention_flash(tensor(Values(12, 1), {1, 2, 6}), 1, Mask::None, 0.75);
  EXPECT_EQ(context.dropout_ordinal(), 2u);
  attention_flash(tensor(Values(12, 1), {1, 2, 6}), 1, Mask::None, 0);
  EXPECT_EQ(context.dropout_ordinal(), 2u);
}

// If the heads or the tokens of a model are sharded over ranks, the ranks drop the same elements as one
// device.
struct L03_OpParts : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 5};
};
INSTANTIATE_TEST_SUITE_P(Devices, L03_OpParts, ::testing::ValuesIn(devices_with_data()),
                         [](const auto& info) { return std::string(info.param); });
struct L15_GroupedHeads : L03_OpParts {};
INSTANTIATE_TEST_SUITE_P(Devices, L15_GroupedHeads, ::testing::ValuesIn(devices_with_data()),
                         [](const auto& info) { return std::string(info.param); });

using In = const Tensor&;
using OfX = std::function<Tensor(const Tensor&)>;
std::pair<Values, Values> value_and_gradient(const Shape& shape, const OfX& f) {
  Values values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(std::sin(double(i * i)));
  Tensor x = from_host(current().device, values, shape, DType::F32, Kind::Data, "x");
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  const Tensor y = f(x);
  tape.backward(y, y.detach());
  return {to_host<double>(y), to_host<double>(leaf.grad)};
}

TEST_P(L03_OpParts, HeadsDropWhatTheWholeDrops) {
  constexpr int64_t T = 5, H = 5, D = 3, C = H * D;
  for (const auto attention : {attention_plain, attention_flash}) {
    const auto of_heads = [&](const Tensor& qkv, int64_t first, int64_t count, int64_t first_head) {
      current().dropout_ordinal() = 0;
      std::vector<Tensor> own;
      for (const Tensor& whole : split(qkv, {C, C, C})) own.push_back(slice(whole, first * D, count * D));
      return attention(concatenate(own), count, Mask::Causal, 0.4, first_head);
    };
    const auto whole = value_and_gradient({2, T, 3 * C}, [&](In x) { return of_heads(x, 0, H, 0); }),
               parts = value_and_gradient(
                   {2, T, 3 * C},
                   [&](In x) {
                     return concatenate({of_heads(x, 0, 1, 0), of_heads(x, 1, 3, 1), of_heads(x, 4, 1, 4)});
                   }),
               wrong = value_and_gradient({2, T, 3 * C}, [&](In x) {
                 return concatenate({of_heads(x, 0, 1, 0), of_heads(x, 1, 4, 0)});
               });
    EXPECT_EQ(parts, whole);
    EXPECT_NE(wrong.first, whole.first);
  }
}

// Grouped heads give the same result as a copy of the keys and values for each query head; the tape sums the
// gradients of the copies.
TEST_P(L15_GroupedHeads, AreHeadsThatHaveCopiesOfTheirKeysAndValues) {
  constexpr int64_t T = 66, D = 3;
  for (const auto& [H, KV] : {std::pair<int64_t, int64_t>(6, 3), {8, 1}, {2, 2}})
    for (const auto attention : {attention_plain, attention_flash})
      for (const Mask mask : {Mask::Causal, Mask::None}) {
        const auto grouped = [&, H = H, KV = KV](In x) {
          current().dropout_ordinal() = 0;
          return attention(x, {H, KV}, mask, 0.4, 1);
        };
        const auto copied = [&, H = H, KV = KV](In x) {
          current().dropout_ordinal() = 0;
          std::vector<Tensor> all{slice(x, 0, H * D)};
          for (const int64_t from : {H, H + KV})
            for (int64_t h = 0; h < H; ++h) all.push_back(slice(x, (from + h / (H / KV)) * D, D));
          return attention(concatenate(all), H, mask, 0.4, 1);
        };
        const Shape shape{2, T, (H + 2 * KV) * D};
        const auto [y, dx] = value_and_gradient(shape, grouped);
        const auto [expected_y, expected_dx] = value_and_gradient(shape, copied);
        EXPECT_EQ(y, expected_y);
        for (size_t i = 0; i < dx.size(); ++i)  // the sums are taken in a different order
          ASSERT_NEAR(dx[i], expected_dx[i], 32 * 0x1p-24 * (1 + std::abs(expected_dx[i])))
              << H << " heads of queries, " << KV << " of keys, element " << i;
      }
}

TEST_P(L03_OpParts, TokensDropWhatTheWholeDrops) {
  constexpr int64_t T = 7, C = 5;
  const auto of_tokens = [](const Tensor& x, int64_t first, int64_t count) {
    current().dropout_ordinal() = 0;
    return dropout(slice(x.reshape({2, T * C}), first * C, count * C), 0.4, first * C);
  };
  const Tensor x = from_host(context.device, Values(70, 1), {2, T * C}, DType::F32, Kind::Data, "x");
  context.dropout_ordinal() = 0;
  const Values all = to_host<double>(dropout(x, 0.4));
  context.dropout_ordinal() = 0;  // and without a tape
  const Values part = to_host<double>(dropout(slice(x, 9, 20), 0.4, 9));
  EXPECT_TRUE(std::equal(part.begin(), part.begin() + 20, all.begin() + 9));
  const auto whole = value_and_gradient({2, T, C}, [&](In x) { return of_tokens(x, 0, T); });
  EXPECT_EQ(
      value_and_gradient({2, T, C},
                         [&](In x) {
                           return concatenate({of_tokens(x, 0, 1), of_tokens(x, 1, 4), of_tokens(x, 5, 2)});
                         }),
      whole);
}

}  // namespace
}  // namespace gradus
