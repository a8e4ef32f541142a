// Models in which some ranks have no parameters that train.
#include "tests/parallel/pipeline_testing.h"

namespace gradus {
namespace {

TEST(L20_PipelineParts, AFirstRankThatDoesNotTrainIsNoError) {
  const TransformerConfig c = small_neox();
  const std::vector<TextBatch> batches = random_micro_batches(c, 2);
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    PipelinePart part(comm, c, 2);
    for (Parameter& p : part.model.parameters)
      if (comm.rank() == 0) part.model.parameters.set_trainable(p, false);
    part.pipeline.run(gpipe(2, 2), batches, counted_targets(batches));
    for (const Parameter& p : part.model.parameters)
      EXPECT_EQ(p.leaf.grad.defined(), comm.rank() == 1) << p.name;
  });
}

}  // namespace
}  // namespace gradus
