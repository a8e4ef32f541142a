// Attention by cuDNN (kernels/cuda/attention_cudnn.h), which is built only with CUDNN_FRONTEND=. These tests
// check that cuDNN's front end accepts each graph, which needs no GPU. attention_test.cpp compares the
// results with the formula.
#include <gtest/gtest.h>

#include "tests/kernels/cudnn_shapes.h"

namespace gradus {
namespace {

// The reason why nothing can be tested here; "" if there is none.
std::string problem() {
  const std::string said =
      cuda::cudnn_graph_problem(packed(1, 1, 1, 64, 64, Mask::None), DType::BF16, true, 90);
  if (said.find("cuda_get_device") != said.npos)
    return "this version of the front end asks for a GPU: " + said;
  return cuda::cudnn_problem();
}

// Libraries before 9.18 have no deterministic backward for sm 100.
bool older_than_9_18() {
  return cuda::cudnn_graph_problem(packed(1, 1, 1, 64, 64, Mask::None), DType::BF16, true, 100)
             .find("below 9.18") != std::string::npos;
}

TEST(L15_Cudnn, ItsFrontEndKnowsEachGraph) {
  if (!problem().empty()) GTEST_SKIP() << problem();
  for (const int sm : {80, 90, 100})
    for (const DType t : {DType::F16, DType::BF16})
      for (const Mask mask : {Mask::Causal, Mask::None})
        for (const auto& [H, KV, D] : {std::tuple(12, 12, 64), {12, 3, 64}, {4, 1, 128}, {2, 2, 8}})
          for (const int64_t T : {2, 33, 64, 1000, 1024, 8192})
            for (const bool backward : {false, true}) {
              if (sm == 100 && backward && older_than_9_18()) continue;
              EXPECT_EQ(cuda::cudnn_graph_problem(packed(16, H, KV, T, D, mask), t, backward, sm), "")
                  << "sm " << sm << ", " << name_of(t) << ", KV " << KV << ", D " << D << ", T " << T
                  << (backward ? ", backward" : "");
            }
}

TEST(L15_Cudnn, WhatItsFrontEndRefusesHasASentence) {
  if (!problem().empty()) GTEST_SKIP() << problem();
  for (const bool backward : {false, true})
    EXPECT_NE(cuda::cudnn_graph_problem(packed(1, 2, 2, 64, 12, Mask::None), DType::BF16, backward, 90), "");
}

}  // namespace
}  // namespace gradus
