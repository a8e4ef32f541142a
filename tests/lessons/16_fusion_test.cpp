// Lesson 16: its measurements, and the GPT that is fused by hand.
#include <cmath>

#include "lessons/15_flash_attention/compare.h"
#include "lessons/16_fusion_and_graphs/elements.h"
#include "lessons/16_fusion_and_graphs/fused_gpt.h"
#include "lessons/16_fusion_and_graphs/head.h"
#include "lessons/16_fusion_and_graphs/pairs.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "tests/folder_testing.h"
#include "tests/lesson_testing.h"

namespace gradus {
namespace {

struct L16_Measures : FolderTest {
  static Lesson lesson_on(const std::string& device) {
    Lesson lesson = lesson_with({"--device=" + device}, "16_test");
    lesson.done();
    return lesson;
  }
};

TEST_F(L16_Measures, FusedPairsSaveTheBytesOfTheFormulaAndGiveTheSameResults) {
  for (const char* device : {"cpu", "emu", "meta"})
    for (const auto& [pair, separate, fused] : compare_pairs(lesson_on(device), {.rows = 5, .channels = 7})) {
      EXPECT_EQ(separate.moved - fused.moved, pair.saved_moves * 4)
          << pair.name << " on " << device << ": the fused operation must move this many bytes fewer";
      EXPECT_EQ(fused.gradients.empty(), std::string(device) == "meta");
      EXPECT_LE(fused.y.empty() ? 0 : largest_difference(fused.gradients, separate.gradients), 1e-5)
          << pair.name << ": the gradients differ";
    }
}

TEST_F(L16_Measures, ThePeakOfTheHeadFallsWithTheRowsPerChunk) {
  for (const char* device : {"cpu", "meta"}) {
    const std::vector<HeadRun> runs =
        run_heads(lesson_on(device), {.rows = 4096, .channels = 8, .vocab = 1000}, {0, 2048, 256});
    ASSERT_EQ(runs.size(), 3u);
    EXPECT_GT(runs[0].peak - runs[1].peak, 2000 * 1000 * 4) << device;
    EXPECT_GT(runs[1].peak - runs[2].peak, 1700 * 1000 * 4) << device;
    EXPECT_EQ(std::isnan(runs[2].seconds), std::string(device) == "meta");
  }
}

TEST_F(L16_Measures, ThePeakOfAModelFallsByTheLogitsOutsideTheChunk) {
  const TransformerConfig small{.vocab = 5000, .context = 64, .layers = 1, .heads = 1, .channels = 8};
  TransformerConfig in_chunks = small;
  in_chunks.loss_rows = 16;
  EXPECT_EQ(peak_of_step(lesson_on("cpu"), small, 4) - peak_of_step(lesson_on("cpu"), in_chunks, 4),
            (4 * 64 - 16) * 5000 * 4 - (2 * 16 + 2) * 4);
}

TEST_F(L16_Measures, ElementwiseRunsAreBitwiseEqualAndMoveThePredictedBytes) {
  for (const char* device : {"cpu", "emu", "meta"}) {
    RunTimeCompiler compiler(path(std::string("code_") + device), RunTimeCompiler::built_with(device));
    const std::vector<ElementRun> runs = run_elements(lesson_on(device), 3000, 100, compiler);
    ASSERT_EQ(runs.size(), 5u);
    for (const ElementRun& run : runs) {
      EXPECT_TRUE(run.equal) << run.name << " on " << device;
      EXPECT_EQ(std::isnan(run.chain), std::string(device) == "meta");
    }
    EXPECT_EQ(runs[3].moved_separate - runs[3].moved_chain, (10 * 2 - 2) * 3000 * 4) << device;
  }
}

TEST_F(L16_Measures, TheGptFusedByHandHasTheLossAndTheGradientsOfTheGpt) {
  for (const char* device : {"cpu", "emu"}) {
    const Context context(device);
    const TransformerConfig c{
        .vocab = 30, .context = 6, .layers = 3, .heads = 2, .channels = 16, .norm_eps = 0.1};
    std::vector<double> losses;
    std::vector<std::vector<double>> gradients;
    for (const bool fused : {false, true}) {
      Transformer model(c);
      model.initialize(1);
      const DummyBatch batch = dummy_batch(c, 2, c.context);
      Tape tape;
      const Tensor loss = fused ? fused_loss(model, batch.ids, batch.targets, 5) : batch.loss(model);
      tape.backward(loss);
      losses.push_back(item(loss));
      std::vector<double> all;
      for (const Parameter& p : model.parameters)
        for (const double g : to_host<double>(p.leaf.grad)) all.push_back(g);
      gradients.push_back(all);
    }
    EXPECT_NEAR(losses[1], losses[0], 1e-6 * losses[0]);
    EXPECT_LE(norm_of_difference(gradients[1], gradients[0]), 1e-6) << device;
  }
}

TEST_F(L16_Measures, AModelThatIsNotGpt2IsNotFusedByHand) {
  const Context context;
  Transformer model({.vocab = 30, .context = 6, .layers = 1, .heads = 2, .channels = 16, .dropout = 0.1});
  const DummyBatch batch = dummy_batch(model.config, 2, 6);
  EXPECT_THROW(fused_loss(model, batch.ids, batch.targets, 5), Error);
}

}  // namespace
}  // namespace gradus
