// Compares a cost with plain numbers.
#pragma once
#include <gtest/gtest.h>

#include "kernels/cost.h"

namespace gradus {

constexpr DType F64 = DType::F64, F32 = DType::F32, BF16 = DType::BF16, F16 = DType::F16;

inline void expect_cost(const char* what, const Cost& cost, OpClass op_class, int64_t flops, int64_t bytes,
                        int64_t scratch = 0) {
  EXPECT_EQ(cost.op_class, op_class) << what;
  EXPECT_EQ(cost.flops, flops) << what;
  EXPECT_EQ(cost.bytes, bytes) << what;
  EXPECT_EQ(cost.scratch, scratch) << what;
}

}  // namespace gradus
