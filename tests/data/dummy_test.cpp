// Random tokens: their range, their kind, and that they are the same on every device.
#include "src/train/dummy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/devices.h"

namespace gradus {
namespace {

TEST(L03_Dummy, UniformBelowTheVocabularyAndTheSameEverywhere) {
  std::vector<int32_t> first;
  for (const char* name : devices_with_data()) {
    Context context(name);
    const Tensor ids = random_tokens({50, 7}, 5, 3, "some tokens");
    EXPECT_EQ(ids.dtype(), DType::I32);
    EXPECT_EQ(ids.shape(), (Shape{50, 7}));
    EXPECT_EQ(ids.storage().kind(), Kind::Data);
    EXPECT_EQ(ids.storage().name(), "some tokens");
    const std::vector<int32_t> values = to_host<int32_t>(ids);
    EXPECT_EQ(std::set<int32_t>(values.begin(), values.end()), (std::set<int32_t>{0, 1, 2, 3, 4})) << name;
    if (first.empty()) first = values;
    EXPECT_EQ(values, first) << name;
    EXPECT_NE(to_host<int32_t>(random_tokens({50, 7}, 5, 4, "x")), first) << "a different seed";
    for (const int32_t id : to_host<int32_t>(random_tokens({9}, 1, 3, "x"))) EXPECT_EQ(id, 0);
  }
  Context context("meta");
  EXPECT_EQ(random_tokens({50, 7}, 5, 3, "x").shape(), (Shape{50, 7}));
  EXPECT_EQ(context.device.meter().now()[Kind::Data], 0) << "none is alive";
}

TEST(L04_Dummy, ABatchHasWhatTheModelReads) {
  Context context("cpu");
  const TransformerConfig gpt{.vocab = 65, .context = 8, .layers = 1, .heads = 1, .channels = 8};
  const DummyBatch text = dummy_batch(gpt, 3, 8);
  EXPECT_EQ(text.ids.shape(), (Shape{3, 8}));
  EXPECT_EQ(text.targets.shape(), (Shape{3, 8}));
  EXPECT_FALSE(text.types.defined());
  EXPECT_EQ(to_host<int32_t>(text.ids), to_host<int32_t>(dummy_batch(gpt, 3, 8, 1).ids))
      << "by default seed 1";

  TransformerConfig bert = transformer_config("bert-base");
  bert.vocab = 65, bert.labels = 3;
  ASSERT_EQ(bert.output_head, OutputHead::Pooled);
  const DummyBatch pooled = dummy_batch(bert, 40, 8);
  EXPECT_EQ(pooled.targets.shape(), Shape{40}) << "one label per sequence";
  EXPECT_EQ(pooled.types.shape(), (Shape{40, 8}));
  const auto highest = [](const Tensor& t) {
    const std::vector<int32_t> values = to_host<int32_t>(t);
    return *std::max_element(values.begin(), values.end());
  };
  EXPECT_EQ(highest(pooled.targets), 2);
  EXPECT_EQ(highest(pooled.types), bert.token_types - 1);
  EXPECT_EQ(highest(pooled.ids), 64);

  bert.labels = bert.vocab;  // labels are drawn separately, not equal to the first tokens
  const DummyBatch wide = dummy_batch(bert, 8, 8);
  EXPECT_NE(to_host<int32_t>(wide.targets), to_host<int32_t>(wide.ids.narrow(0, 1).reshape({8})));

  TransformerConfig typed = gpt;
  typed.token_types = gpt.vocab;
  const DummyBatch three = dummy_batch(typed, 3, 8);
  EXPECT_NE(to_host<int32_t>(three.types), to_host<int32_t>(three.ids));
  EXPECT_NE(to_host<int32_t>(three.types), to_host<int32_t>(three.targets));
  EXPECT_EQ(three.ids.storage().name(), "inputs");
  EXPECT_EQ(three.targets.storage().name(), "targets");
  EXPECT_EQ(three.types.storage().name(), "token types");

  std::set<std::vector<int32_t>> distinct;  // no two tensors of several batches are equal
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const DummyBatch batch = dummy_batch(gpt, 3, 8, seed);
    distinct.insert(to_host<int32_t>(batch.ids));
    distinct.insert(to_host<int32_t>(batch.targets));
  }
  EXPECT_EQ(distinct.size(), 10u);
}

}  // namespace
}  // namespace gradus
