// bias_gelu and add_layernorm compared with the two ops that each replaces, and what they refuse. (Compared
// with finite differences: gradients_test.cpp.)
#include <gtest/gtest.h>

#include <cmath>

#include "src/core/rng.h"
#include "src/ops/ops.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
using Inputs = std::vector<Tensor>;

Tensor normals(const Shape& shape, DType t, uint64_t stream) {
  Rng rng(16, stream);
  Values values(static_cast<size_t>(shape.numel()));
  for (double& v : values) v = rng.normal();
  return from_host(current().device, values, shape, t, Kind::Data, "x");
}

// The outputs, then the wanted gradients. training: bit i is set if input i trains.
std::vector<Values> results(const std::vector<Shape>& shapes, unsigned training, int64_t micro_batches,
                            const std::function<std::vector<Tensor>(const Inputs&)>& f,
                            const std::function<Tensor(const std::vector<Tensor>&)>& end) {
  Inputs x;
  std::vector<Leaf> leaves(shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    x.push_back(normals(shapes[i], DType::F64, i));
    if (training >> i & 1) attach(x[i], leaves[i], std::to_string(i));
  }
  std::vector<Values> all;
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    Tape tape;
    const std::vector<Tensor> y = f(x);
    for (const Tensor& t : y) all.push_back(to_host<double>(t));
    const Tensor last = end(y);
    tape.backward(last, normals(last.shape(), DType::F64, 9));
  }
  for (const Leaf& leaf : leaves)
    if (leaf.grad.defined()) all.push_back(to_host<double>(leaf.grad));
  return all;
}
void expect_near(const std::vector<Values>& got, const std::vector<Values>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].size(), expected[k].size()) << k;
    for (size_t i = 0; i < got[k].size(); ++i) EXPECT_NEAR(got[k][i], expected[k][i], 1e-13) << k << " " << i;
  }
}

struct L16_FusedOps : TapeTest {
  Tensor of(const Shape& shape, DType t = DType::F32) {
    return Tensor(context.device, shape, t, Kind::Data, "x");
  }
};

TEST_F(L16_FusedOps, BiasGeluIsGeluOfASum) {
  const std::vector<Shape> shapes{{2, 3, 4}, {4}};
  for (unsigned training = 1; training < 4; ++training) {
    const auto of = [&](const std::function<Tensor(const Inputs&)>& f) {
      return results(
          shapes, training, 2, [&](const Inputs& x) { return Inputs{f(x)}; },
          [](const Inputs& y) { return gelu(y[0]); });
    };
    expect_near(
        of([](const Inputs& x) { return bias_gelu(x[0], x[1]); }),
        of([&](const Inputs& x) {  // x + bias as a product with the identity
          Values identity(16);
          for (size_t i = 0; i < 4; ++i) identity[5 * i] = 1;
          return gelu(linear(
              x[0], from_host(context.device, identity, {4, 4}, DType::F64, Kind::Data, "identity"), x[1]));
        }));
  }
}

TEST_F(L16_FusedOps, AddLayerNormIsAddAndLayerNormWhicheverOutputIsUsed) {
  const std::vector<Shape> shapes{{2, 3, 5}, {2, 3, 5}, {5}, {5}};
  const std::vector<std::function<Tensor(const Inputs&)>> ends{
      [](const Inputs& y) { return scale(y[0], 2); }, [](const Inputs& y) { return gelu(y[1]); },
      [](const Inputs& y) { return add(y[0], gelu(y[1])); },
      [](const Inputs& y) { return add(gelu(y[1]), multiply(y[0], y[1])); }};
  for (size_t end = 0; end < ends.size(); ++end)
    for (unsigned training = 1; training < 16; ++training) {
      if (end == 0 && !(training & 3)) continue;  // the sum depends only on a and b
      SCOPED_TRACE("end " + std::to_string(end) + ", training " + std::to_string(training));
      expect_near(results(
                      shapes, training, 2,
                      [](const Inputs& x) { return add_layernorm(x[0], x[1], x[2], x[3], 1e-3); }, ends[end]),
                  results(
                      shapes, training, 2,
                      [](const Inputs& x) {
                        const Tensor sum = add(x[0], x[1]);
                        return Inputs{sum, layernorm(sum, x[2], x[3], 1e-3)};
                      },
                      ends[end]));
    }
}

// If one tensor is both terms, its gradient is the sum of two.
TEST_F(L16_FusedOps, AddLayerNormTakesATensorTwice) {
  const auto of = [](const std::function<std::vector<Tensor>(const Inputs&)>& f) {
    return results({{3, 5}, {5}, {5}}, 7, 2, f, [](const Inputs& y) { return add(y[0], gelu(y[1])); });
  };
  expect_near(of([](const Inputs& x) {
                const Tensor h = gelu(x[0]);
                return add_layernorm(h, h, x[1], x[2]);
              }),
              of([](const Inputs& x) {
                const Tensor h = gelu(x[0]), sum = add(h, h);
                return Inputs{sum, layernorm(sum, x[1], x[2])};
              }));
}

TEST_F(L16_FusedOps, BiasGeluRefusesABiasOfAnotherShapeOrDtype) {
  bias_gelu(of({2, 3}), of({3}));
  for (const Shape& bias : {Shape{2}, Shape{1, 3}, Shape{3, 1}, Shape{}})
    expect_refused("bias_gelu: x is [2,3] fp32, bias is", [&] { bias_gelu(of({2, 3}), of(bias)); });
  expect_refused("bias_gelu: x is [2,3] fp32, bias is [3] bf16; bias must be [3] fp32", [&] {
    bias_gelu(of({2, 3}), of({3}, DType::BF16));
  });
}

TEST_F(L16_FusedOps, AddLayerNormRefusesTermsAndParametersOfOtherShapes) {
  add_layernorm(of({2, 5}), of({2, 5}), of({5}), of({5}));
  for (const Shape& bad : {Shape{4}, Shape{1, 5}, Shape{5, 1}, Shape{}}) {
    expect_refused("add_layernorm: a is [2,5]", [&] {
      add_layernorm(of({2, 5}), of({2, 5}), of(bad), of({5}));
    });
    expect_refused("add_layernorm: a is [2,5]", [&] {
      add_layernorm(of({2, 5}), of({2, 5}), of({5}), of(bad));
    });
    expect_refused("add_layernorm: a is [2,5] fp32, b is", [&] {
      add_layernorm(of({2, 5}), of(bad), of({5}), of({5}));
    });
  }
  expect_refused("add_layernorm: a is [2,5] fp32, b is [2,5] bf16", [&] {
    add_layernorm(of({2, 5}), of({2, 5}, DType::BF16), of({5}), of({5}));
  });
}

}  // namespace
}  // namespace gradus
