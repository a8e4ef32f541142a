// The elements that a chain stores: only those that are read later.
#include "tests/train/chains_testing.h"

namespace gradus {
namespace {

TEST(L16_ChainsStored, WhatTheProgramReadsAfterTheStep) {
  RecordProperty("exercise", "16.4");
  expect_same_to_the_bit({.shape = {255},
                          .ops =
                              [](OpsStep& s) {
                                const Tensor a = scale(s.x, 0.5), b = gelu(a);
                                s.kept = {a, b};
                                return scale(add(b, a), 3);
                              }},
                         "the program reads the results of scale and gelu after the step");
}

TEST(L16_ChainsStored, WhatAnotherCallReads) {
  RecordProperty("exercise", "16.4");
  expect_same_to_the_bit({.shape = {3, 5},
                          .ops =
                              [](OpsStep& s) {
                                const Tensor a = scale(s.x, 0.5), b = gelu(a);
                                return add(softmax(a), scale(b, 3));
                              }},
                         "softmax, which is not a call of the chain, reads the result of scale");
}

// The element is computed in one loop over a row and read in a different one, after the norm.
TEST(L16_ChainsStored, WhatIsReadAfterACallOverWholeRows) {
  RecordProperty("exercise", "16.4");
  const FusedChains fused =
      expect_same_to_the_bit({.shape = {7, 33},
                              .ops =
                                  [](OpsStep& s) {
                                    const Tensor a = scale(s.x, 0.5), b = gelu(s.x);
                                    return add(layernorm(b, s.parameter("gamma"), s.parameter("beta")), a);
                                  }},
                             "layernorm ends the loop: add reads scale's result in memory");
  EXPECT_EQ(fused.chains.count("scale + gelu_fwd + layernorm_fwd + add"), 1u)
      << ::testing::PrintToString(fused.chains);
}

// Without a tape only the norm reads its input.
TEST(L16_ChainsStored, WhatACallOverWholeRowsReads) {
  RecordProperty("exercise", "16.4");
  const FusedChains fused = expect_same_to_the_bit(
      {.shape = {7, 33},
       .ops =
           [](OpsStep& s) {
             const NoTape none;
             return layernorm(gelu(scale(s.x, 0.5)), s.parameter("gamma"), s.parameter("beta"));
           }},
      "layernorm itself reads gelu's result in memory");
  EXPECT_EQ(fused.chains, (Names{{"scale + gelu_fwd + layernorm_fwd", 1}}));
}

// For a gradient with two parts, the second part is added to the first: the chain loads it to store the sum.
TEST(L16_ChainsStored, WhatAnotherCallOfTheChainAddsTo) {
  RecordProperty("exercise", "16.4");
  expect_same_to_the_bit({.shape = {3, 5},
                          .ops =
                              [](OpsStep& s) {
                                const Tensor a = scale(add(s.x, s.parameter("weight")), 0.5);
                                const Tensor b = gelu(a), c = scale(a, 3);
                                return multiply(b, c);
                              }},
                         "a has two gradients, and the second call adds to what the first has stored");
}

TEST(L16_ChainsStored, NothingThatIsReadInTheLoopAlone) {
  RecordProperty("exercise", "16.4");
  const FusedChains fused = expect_same_to_the_bit(
      {.shape = {1000}, .ops = [](OpsStep& s) { return scale(gelu(add(s.x, s.x)), 2); }});
  EXPECT_EQ(fused.bytes_before - fused.bytes_after, (3 + 2 + 2) * 4000 - (1 + 1) * 4000)
      << "x is read and the last result is stored; the others stay in registers";
  const std::string& code = fused.code.at("add + gelu_fwd + scale");
  size_t stores = 0;
  for (size_t at = code.find("store<"); at != code.npos; at = code.find("store<", at + 1)) ++stores;
  EXPECT_EQ(stores, 1u) << "stores of the compiled loop:\n" << code;
}

}  // namespace
}  // namespace gradus
