// For tests of ring attention: attention and its gradient, to compare.
#pragma once
#include "tests/parallel/rank_ops_testing.h"
#include "tests/parallel/zigzag_testing.h"

namespace gradus {

struct Attention {
  Values y, dqkv;
};
inline Attention attend(const Tensor& given, const Values& dy,
                        const std::function<Tensor(const Tensor&)>& f) {
  Tensor qkv = given;
  Leaf leaf;
  attach(qkv, leaf, "qkv");
  Tape tape;
  const Tensor y = f(qkv);
  const Values values = to_host<double>(y);
  tape.backward(y, tensor_of(dy, y.shape(), y.dtype()));
  return {values, to_host<double>(leaf.grad)};
}
inline void expect_near(const Values& got, const Values& expected, double error, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], error * (1 + std::abs(expected[i]))) << what << ", " << i;
}

}  // namespace gradus
