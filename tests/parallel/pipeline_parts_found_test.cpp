// Found: ranks whose parts are not the whole model together train without the rest.
#include "src/parallel/plan.h"
#include "tests/parallel/pipeline_testing.h"

namespace gradus {
namespace {

TEST(L20_PipelineFound, PartsThatLackABlockOrHaveOneTwiceAreRefused) {
  const TransformerConfig c = small_gpt();
  const std::vector<TextBatch> batches = random_micro_batches(c, 4);
  for (const int64_t begins : {1, 3})
    EXPECT_NE(refusal([&] {
                run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
                  const std::vector<int64_t> ends{comm.rank() == 0 ? 2 : begins, 4};
                  Transformer model(c, Allocate::Now, part_of_pipeline(ends, comm.rank(), 2));
                  Pipeline pipeline(comm, model);
                  pipeline.run(gpipe(2, 4), batches, counted_targets(batches));
                });
              }),
              "")
        << "rank 0 has blocks 0 and 1 of 4, rank 1 begins with block " << begins;
}

TEST(L20_PipelineFound, EndsThatAreNotTheLastBlocksAreRefusedByModelsAndPlans) {
  const TransformerConfig c = small_gpt();
  for (const std::vector<int64_t>& ends : {std::vector<int64_t>{1, 2}, {2, 5}}) {
    EXPECT_NE(refusal([&] {
                run_cluster({.ranks = 2}, [&](Comm& comm) { RankModel(comm, {.pipeline = 2}, c, ends); });
              }),
              "")
        << "RankModel of 4 blocks, of which the last chunk ends with " << ends.back();
    EXPECT_NE(refusal([&] { plan_of({.model = c, .layout = {.pipeline = 2}, .ends = ends}); }), "")
        << "plan of 4 blocks, of which the last chunk ends with " << ends.back();
  }
}

}  // namespace
}  // namespace gradus
