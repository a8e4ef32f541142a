// What tests of the tape and of ops share: a context, and tensors with numbers from the test.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "src/tensor/context.h"

namespace gradus {

// Token ids, targets or positions, in the current context.
inline Tensor ids_of(const std::vector<int32_t>& values, const Shape& shape) {
  return from_host(current().device, values, shape, DType::I32, Kind::Data, "ids");
}

struct TapeTest : ::testing::Test {
  Context context{"cpu", 5};
  Leaf leaf;
  Tensor tensor(const std::vector<double>& values, const Shape& shape, DType t = DType::F32) {
    return from_host(context.device, values, shape, t, Kind::Weight, "x");
  }
  Tensor trains(Tensor x) {  // its gradient goes to `leaf`
    attach(x, leaf, "x");
    return x;
  }
};

}  // namespace gradus
