// Lesson 04's formulas: bytes per parameter, compared with published values; bytes that a transformer block
// saves, compared with the tape.
#include <gtest/gtest.h>

#include "src/tensor/context.h"
#include "src/train/dummy.h"
#include "src/train/formulas.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

int64_t saved(TransformerConfig config, int64_t layers, int64_t B, int64_t T) {
  const Context context("meta");
  config.layers = layers;
  const Transformer model(config);
  Tape tape;
  const Tensor loss = dummy_batch(config, B, T).loss(model);
  return tape.saved_bytes();
}

void expect_what_a_third_block_adds(const TransformerConfig& config, int64_t B, int64_t T) {
  const int64_t expected = saved(config, 3, B, T) - saved(config, 2, B, T),
                got = saved_by_a_layer(config, B, T), C = config.channels, H = config.heads,
                less = (expected - got) / size_of(config.precision.value);
  EXPECT_EQ(got, expected) << "your bytes, compared with those that a third block adds to the tape: B = " << B
                           << ", T = " << T << ", C = " << C << ", H = " << H
                           << usual_mistake(
                                  {{less == B * T * 4 * C,
                                    "4 C numbers per token are missing: gelu saves its input, "
                                    "and the layer after it saves gelu's output"},
                                   {less == B * T * (H - 1) * T, "each head has its own probabilities"}});
}

TEST(L04_Formulas, BytesOfAParameter) {
  RecordProperty("exercise", "04.1");
  EXPECT_EQ(bytes_per_parameter(precision_recipe("fp32"), 2), 4 + 4 + 8);
  EXPECT_EQ(bytes_per_parameter(precision_recipe("fp32"), 0), 4 + 4);
  const int64_t mixed = bytes_per_parameter(precision_recipe("mixed"), 2);
  EXPECT_EQ(mixed, 2 + 4 + 4 + 8)
      << "weight in 16 bits; master copy, gradient and two states in fp32"
      << usual_mistake({{mixed == 2 + 0 + 4 + 8, "the master copy is not counted"},
                        {mixed == 2 + 2 + 4 + 8,
                         "the master copy is counted with the bytes of the weight, but it is in fp32"}});
  EXPECT_EQ(bytes_per_parameter(precision_recipe("mixed"), 0), 2 + 4 + 4);
  EXPECT_EQ(bytes_per_parameter(precision_recipe("half"), 1), 2 + 2 + 2);
  EXPECT_EQ(bytes_per_parameter({DType::F16, DType::F32, DType::F64, false}, 2), 2 + 4 + 16)
      << "value, gradient and state may have three different dtypes";
}

TEST(L04_Formulas, SavedBytesOfABlock) {
  RecordProperty("exercise", "04.3");
  for (const std::string_view recipe : kRecipes)
    for (const int64_t heads : {2, 6})
      for (const double dropout : {0.0, 0.1}) {
        const TransformerConfig config{.vocab = 10,
                                       .context = 20,
                                       .heads = heads,
                                       .channels = 24,
                                       .dropout = dropout,
                                       .precision = precision_recipe(recipe)};
        for (const auto& [B, T] : {std::pair<int64_t, int64_t>(1, 20), {3, 7}})
          expect_what_a_third_block_adds(config, B, T);
      }
}

}  // namespace
}  // namespace gradus
