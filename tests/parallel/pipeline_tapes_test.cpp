// What an error in the middle of a run leaves behind.
#include "tests/parallel/pipeline_testing.h"

namespace gradus {
namespace {

TEST(L20_PipelineParts, AnErrorThatIsCaughtLeavesNoTapeRecording) {
  const TransformerConfig c = small_gpt();
  std::vector<TextBatch> wrong = random_micro_batches(c, 4);
  wrong[2].ids[3] = int32_t(c.vocab);
  run_cluster({.ranks = 1, .seed = 7}, [&](Comm& comm) {
    PipelinePart part(comm, c, 1);
    expect_refused("", [&] { part.pipeline.run(gpipe(1, 4), wrong, counted_targets(wrong)); });
    EXPECT_EQ(current().tape(), nullptr);
  });
}

}  // namespace
}  // namespace gradus
