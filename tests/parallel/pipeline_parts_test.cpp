// Chunks that do not end with the last block of the model.
#include "src/parallel/plan.h"
#include "tests/parallel/pipeline_testing.h"

namespace gradus {
namespace {

TEST(L20_PipelineParts, EndsThatAreNotTheLastBlocksAreRefusedByModelsAndPlans) {
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
