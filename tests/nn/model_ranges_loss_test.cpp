// loss() and logits() of parts with several ranges.
#include "src/train/dummy.h"
#include "tests/nn/families_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L20_ModelRanges, LossOfAPartWithSeveralRangesIsTheWholesOrRefused) {
  TransformerConfig c = family("gpt");
  c.layers = 4;
  const auto loss = [&](const ModelPart& part) {
    Context context("cpu", 5);
    Transformer model(c, Allocate::Now, part);
    model.initialize(9);
    const DummyBatch batch = dummy_batch(c, 2, c.context);
    return item(model.loss(batch.ids, batch.targets));
  };
  const double whole = loss({});
  double in_two = 0;
  const std::string text = refusal([&] { in_two = loss({.ranges = {{0, 2}, {2, 4}}}); });
  EXPECT_TRUE(!text.empty() || in_two == whole)
      << "all blocks, in two ranges: " << in_two << " is not " << whole;
  EXPECT_NE(refusal([&] { loss({.ranges = {{0, 1}, {2, 4}}}); }), "") << "block 1 is missing";
}

}  // namespace
}  // namespace gradus
