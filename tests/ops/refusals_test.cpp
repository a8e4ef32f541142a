// What each op refuses: every condition of its header broken alone, by a sentence that begins with its name.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "src/ops/ops.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L03_OpRefusals : ::testing::Test {
  Context context{"meta"};
  Tensor of(const Shape& shape, DType t = DType::F32) {
    return Tensor(context.device, shape, t, Kind::Data, "x");
  }
  Tensor ids(const Shape& shape) { return of(shape, DType::I32); }
  void expect_refused(const std::string& begins, const std::function<void()>& f) {
    const std::string text = refusal(f);
    EXPECT_TRUE(text.starts_with(begins)) << "\"" << text << "\" should begin with " << begins;
  }
};

TEST_F(L03_OpRefusals, Add) {
  for (const Shape& b : {Shape{3, 2}, Shape{6}, Shape{2, 3, 1}, Shape{1, 3}, Shape{2, 4}})
    expect_refused("add: a is [2,3]", [&] { add(of({2, 3}), of(b)); });
  expect_refused("add: a is [2,3] fp32, b is [2,3] bf16", [&] { add(of({2, 3}), of({2, 3}, DType::BF16)); });
}

TEST_F(L03_OpRefusals, AddPositions) {
  const Tensor table = of({4, 5});
  add_positions(of({1, 4, 5}), table);
  for (const Shape& x : {Shape{4, 5}, Shape{0, 4, 5}, Shape{1, 4, 6}, Shape{1, 5, 5}, Shape{1, 1, 4, 5}})
    expect_refused("add_positions: x is", [&] { add_positions(of(x), table); });
  expect_refused("add_positions: x is", [&] { add_positions(of({1, 4, 5}), of({20})); });
}

TEST_F(L03_OpRefusals, Attention) {
  for (const auto attention : {attention_plain, attention_flash}) {
    attention(of({1, 2, 12}), 2, Mask::Causal, 0, 0);
    const std::string op = attention == attention_plain ? "attention_plain" : "attention_flash";
    expect_refused(op + ": qkv", [&] { attention(of({2, 12}), 2, Mask::Causal, 0, 0); });
    expect_refused(op + ": qkv", [&] { attention(of({1, 2, 12}), 0, Mask::Causal, 0, 0); });
    expect_refused(op + ": qkv", [&] { attention(of({1, 2, 12}), -2, Mask::Causal, 0, 0); });
    expect_refused(op + ": qkv", [&] { attention(of({1, 2, 12}), 3, Mask::Causal, 0, 0); });
    expect_refused(op + ": qkv is [1,2,16] with 2 heads", [&] {
      attention(of({1, 2, 16}), 2, Mask::Causal, 0, 0);
    });
    attention(of({1, 2, 12}), {4, 1}, Mask::Causal, 0, 0);
    for (const Heads heads : {Heads(4, 0), Heads(4, -1), Heads(4, 3), Heads(2, 4), Heads(0, 1), Heads(0, 0),
                              Heads(-4, 2), Heads(-4, -2)})
      expect_refused(op + ": qkv is [1,2,12] with " + std::to_string(heads.q) + " heads of queries and " +
                         std::to_string(heads.kv) + " of keys and values; the first must be a multiple",
                     [&] {
                       attention(of({1, 2, 12}), heads, Mask::Causal, 0, 0);
                     });
    expect_refused(
        op + ": qkv is [1,2,12] with 4 heads of queries and 2 of keys and values; it must be (B, T, " +
            "(H + 2 KV) D), so 8 must divide",
        [&] {
          attention(of({1, 2, 12}), {4, 2}, Mask::Causal, 0, 0);
        });
    for (const double p : {-0.1, 1.0, double(NAN)})
      expect_refused(op + ": dropout is", [&] { attention(of({1, 2, 12}), 2, Mask::Causal, p, 0); });
    expect_refused(op + ": the first head is -1", [&] { attention(of({1, 2, 12}), 2, Mask::Causal, 0, -1); });
  }
}

TEST_F(L03_OpRefusals, CrossEntropy) {
  cross_entropy(of({2, 3, 5}), ids({2, 3}));
  cross_entropy(of({2, 3, 5}), ids({6}));
  for (const Shape& targets : {Shape{2}, Shape{7}, Shape{2, 3, 5}, Shape{0}})
    expect_refused("cross_entropy: logits are [2,3,5]", [&] { cross_entropy(of({2, 3, 5}), ids(targets)); });
  expect_refused("cross_entropy: logits are", [&] { cross_entropy(of({2, 5}), of({2})); });
  expect_refused("cross_entropy: logits are", [&] { cross_entropy(of({0, 5}), ids({0})); });
  expect_refused("cross_entropy: logits are", [&] { cross_entropy(of({}), ids({1})); });
  expect_refused("cross_entropy: logits are", [&] { cross_entropy(of({2, 0}), ids({2})); });
}

TEST_F(L03_OpRefusals, Dropout) {
  for (const double p : {-0.1, 1.0, 1.5, double(NAN)})
    expect_refused("dropout: p is", [&] { dropout(of({2, 3}), p); });
  expect_refused("dropout: x is [6]", [&] { dropout(of({6}), 0.5); });
}

TEST_F(L03_OpRefusals, Embedding) {
  expect_refused("embedding: table is [6]", [&] { embedding(of({6}), ids({2})); });
  expect_refused("embedding: table is [2,3,1]", [&] { embedding(of({2, 3, 1}), ids({2})); });
  expect_refused("embedding: table is [2,3], ids are [2] fp32", [&] { embedding(of({2, 3}), of({2})); });
}

TEST_F(L03_OpRefusals, SelectToken) {
  expect_refused("select_token: x is [4,5]", [&] { select_token(of({4, 5}), 0); });
  expect_refused("select_token: x is [2,0,5]", [&] { select_token(of({2, 0, 5}), 0); });
  for (const int64_t t : {-1, 3})
    expect_refused("select_token: x is [2,3,5], t is", [&] { select_token(of({2, 3, 5}), t); });
}

TEST_F(L03_OpRefusals, DropoutsFirstElement) {
  expect_refused("dropout: the first element is -1", [&] { dropout(of({2, 3}), 0.5, -1); });
}

TEST_F(L03_OpRefusals, Parts) {
  for (const auto& [begin, count] :
       {std::pair<int64_t, int64_t>(-1, 2), {0, 6}, {5, 1}, {1, -1}, {6, -1}, {1, INT64_MAX}, {INT64_MAX, 1}})
    expect_refused("slice: x is [2,5]; there are no", [&] { slice(of({2, 5}), begin, count); });
  expect_refused("slice: x is []", [&] { slice(of({}), 0, 1); });
  for (const std::vector<int64_t>& counts : std::vector<std::vector<int64_t>>{
           {}, {4}, {6}, {2, 2}, {6, -1}, {-1, 3, 3}, {INT64_MAX, INT64_MAX, 7}})
    expect_refused("split: x is [2,5]; the columns of the parts must be", [&] { split(of({2, 5}), counts); });
  expect_refused("split: x is []", [&] { split(of({}), {1}); });
  expect_refused("concatenate: there is nothing", [&] { concatenate({}); });
  expect_refused("concatenate: there is nothing", [&] { concatenate({of({})}); });
  for (const Shape& bad : {Shape{3, 5}, Shape{5}, Shape{1, 2, 5}, Shape{}})
    expect_refused("concatenate: a part is [", [&] { concatenate({of({2, 5}), of(bad)}); });
  const Tensor other(context.device, {2, 5}, DType::BF16, Kind::Data, "x");
  expect_refused("concatenate: a part is [2,5] bf16", [&] { concatenate({of({2, 5}), other}); });
}

TEST_F(L03_OpRefusals, Multiply) {
  const Tensor other(context.device, {2, 5}, DType::BF16, Kind::Data, "x");
  for (const Tensor& bad : {of({5, 2}), of({10}), of({1, 2, 5}), other})
    expect_refused("multiply: a is [2,5] fp32, b is", [&] { multiply(of({2, 5}), bad); });
}

TEST_F(L03_OpRefusals, LayerNorm) {
  for (const Shape& bad : {Shape{4}, Shape{1, 5}, Shape{5, 1}, Shape{}}) {
    expect_refused("layernorm: x is [2,5]", [&] { layernorm(of({2, 5}), of(bad), of({5})); });
    expect_refused("layernorm: x is [2,5]", [&] { layernorm(of({2, 5}), of({5}), of(bad)); });
  }
}

TEST_F(L03_OpRefusals, Linear) {
  linear(of({3}), of({4, 3}), of({4}));
  expect_refused("linear: x is [2,3], weight is [3,4]", [&] { linear(of({2, 3}), of({3, 4})); });
  expect_refused("linear: x is", [&] { linear(of({2, 3}), of({3})); });
  expect_refused("linear: x is", [&] { linear(of({2, 3}), of({2, 4, 3})); });
  expect_refused("linear: x is", [&] { linear(of({}), of({4, 1})); });
  for (const Shape& bias : {Shape{3}, Shape{1, 4}, Shape{4, 1}, Shape{}})
    expect_refused("linear: weight is [4,3], bias is", [&] { linear(of({2, 3}), of({4, 3}), of(bias)); });
}

TEST_F(L03_OpRefusals, Rotary) {
  rotary(of({1, 2, 24}), 2, 4, 7);
  expect_refused("rotary: qkv is [2,24]", [&] { rotary(of({2, 24}), 2, 4); });
  expect_refused("rotary: qkv is", [&] { rotary(of({1, 2, 24}), 0, 4); });
  expect_refused("rotary: qkv is", [&] { rotary(of({1, 2, 24}), 5, 2); });
  expect_refused("rotary: qkv is [1,2,16] with 2 heads", [&] { rotary(of({1, 2, 16}), 2, 2); });
}

}  // namespace
}  // namespace gradus
