// A file of whole weights, loaded into a model whose weights are shared out: each rank keeps its part, or the
// file is refused and nothing has changed.
#include "src/io/checkpoint.h"
#include "tests/dist/sharded_training.h"
#include "tests/folder_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L18_ZeroWeightsFile : FolderTest {};

// What counts is what is there after an update.
TEST_F(L18_ZeroWeightsFile, IsLoadedOrRefused) {
  for (const Precision& precision : {uniform(DType::F32), mixed(DType::BF16)}) {
    ShardedSetting set;
    set.model.precision = precision;
    Context context("cpu");
    Transformer whole(set.model);
    whole.initialize(2);
    for (Parameter& p : whole.parameters) p.master = {};  // saved as what computes
    save_weights(path("w"), whole.parameters);
    for (const int stage : {0, 1, 2, 3})
      run_cluster({.ranks = 2, .seed = 3}, [&](Comm& comm) {
        Transformer model(set.model, Allocate::Later);
        Zero zero(comm, model.parameters, {.stage = stage, .unit = unit_per_block});
        model.initialize(1, [&](Parameter& p, const std::vector<double>& v) { zero.assign(p, v); });
        const Weights before = weights_of(model);
        zero.end_forward();
        const std::string text = refusal([&] { load_weights(path("w"), model.parameters); });
        zero.shards.shares->updated();  // what other ranks own
        EXPECT_EQ(text.empty(), stage < 3 && !precision.master) << text;
        EXPECT_EQ(weights_of(model), text.empty() ? weights_of(whole) : before) << "stage " << stage;
        EXPECT_EQ(text.empty(), text.find("load_sharded()") == std::string::npos) << text;
      });
  }
}

}  // namespace
}  // namespace gradus
