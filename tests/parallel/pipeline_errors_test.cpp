// What pipelines reject (src/parallel/pipeline.h), that they can be used afterwards, and what errors in the
// middle of a run leave.
#include "tests/parallel/pipeline_testing.h"

namespace gradus {
namespace {

struct PipelineErrors : ::testing::Test {
  const TransformerConfig c = small_gpt();
  const std::vector<TextBatch> batches = random_micro_batches(c, 4);
  const int64_t targets = counted_targets(batches);
  const PipelineReference expected = on_one_device(c, batches, targets);
  static constexpr int64_t kRanks = 2;

  // Rejected on every rank with this message; then a step is the same as without the error.
  void expect_refused_and_usable(const std::string& sentence, const Schedule& schedule,
                                 const std::vector<TextBatch>& wrong, int64_t chunks = 4) const {
    run_cluster({.ranks = kRanks, .seed = 7}, [&](Comm& comm) {
      PipelinePart part(comm, c, chunks);
      expect_refused(sentence, [&] { part.pipeline.run(schedule, wrong, targets); });
      EXPECT_EQ(current().tape(), nullptr);
      comm.barrier();
      expect_step(comm, part, chunks, sentence);
    });
  }
  void expect_step(Comm& comm, PipelinePart& part, int64_t chunks, const std::string& what) const {
    part.model.parameters.zero_grad();
    const double loss = part.pipeline.run(interleaved(kRanks, 4, chunks / kRanks), batches, targets);
    part.pipeline.sum_tied_gradients();
    expect_part(comm, part.model, loss, expected, "after: " + what);
  }
};
using L20_PipelineErrors = PipelineErrors;

TEST_F(L20_PipelineErrors, ASchedulesThatCannotRunIsRefused) {
  expect_refused_and_usable("deadlock", schedule_of_text("F0 B0 F1 B1\nF1 B1 F0 B0\n"),
                            {batches[0], batches[1]}, 2);
  Schedule missing = interleaved(2, 4, 2), twice = missing;
  missing.of_rank[1].pop_back(), twice.of_rank[0].push_back(twice.of_rank[0][0]);
  expect_refused_and_usable("is missing", missing, batches);
  expect_refused_and_usable("is listed twice", twice, batches);
}
TEST_F(L20_PipelineErrors, ASchedulesOfADifferentNumberOfRanksOrChunksIsRefused) {
  expect_refused_and_usable("4", gpipe(4, 4), batches);               // the same number of chunks
  expect_refused_and_usable("1", interleaved(1, 4, 4), batches);      // the same number of chunks
  expect_refused_and_usable("chunk", gpipe(2, 4), batches);           // one of 2 ranges
  expect_refused_and_usable("chunk", interleaved(2, 4, 3), batches);  // a third range
  expect_refused_and_usable("chunk", interleaved(2, 4, 2), batches, 2);
}
TEST_F(L20_PipelineErrors, ADifferentNumberOfMicroBatchesIsRefused) {
  const Schedule s = interleaved(2, 4, 2);
  expect_refused_and_usable("micro-batch", s, {batches[0], batches[1], batches[2]});
  expect_refused_and_usable("micro-batch", s, {});
  expect_refused_and_usable("micro-batch", interleaved(2, 2, 2), batches);
}
TEST_F(L20_PipelineErrors, MicroBatchesOfDifferentShapesAreRefused) {
  std::vector<TextBatch> fewer = batches, shorter = batches;
  fewer[2] = batches[2].part(0, 1);
  for (std::vector<int32_t>* ids : {&shorter[3].ids, &shorter[3].targets}) ids->resize(size_t(2 * 5));
  shorter[3].T = 5;
  expect_refused_and_usable("shape", interleaved(2, 4, 2), fewer);
  expect_refused_and_usable("shape", interleaved(2, 4, 2), shorter);
}
// The same number of elements, so messages would fit.
TEST_F(L20_PipelineErrors, MicroBatchesOfAsManyTokensInADifferentShapeAreRefused) {
  std::vector<TextBatch> other = batches;
  other[1].sequences = 4, other[1].T = 3;
  expect_refused_and_usable("shape", interleaved(2, 4, 2), other);
}
TEST_F(L20_PipelineErrors, SequencesLongerThanTheContextEndAllRanks) {
  std::vector<TextBatch> longer = batches;
  for (TextBatch& b : longer) b.sequences = 1, b.T = 12;
  EXPECT_NE(refusal([&] {
              run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
                PipelinePart part(comm, c, 4);
                part.pipeline.run(interleaved(2, 4, 2), longer, targets);
              });
            }),
            "");
}

TEST_F(L20_PipelineErrors, APartThatIsNotThisRanksIsRefused) {
  const auto refused = [&](int64_t ranks, const std::function<ModelPart(int64_t rank)>& part) {
    return refusal([&] {
      run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
        Transformer model(c, Allocate::Now, part(comm.rank()));
        Pipeline pipeline(comm, model);
        pipeline.run(gpipe(ranks, 4), batches, targets);
      });
    });
  };
  const std::vector<int64_t> ends{2, 4};
  EXPECT_EQ(refused(2, [&](int64_t r) { return part_of_pipeline(ends, r, 2); }), "");
  EXPECT_NE(refused(2, [&](int64_t r) { return part_of_pipeline(ends, 1 - r, 2); }), "") << "exchanged";
  EXPECT_NE(refused(2, [&](int64_t) { return ModelPart{}; }), "") << "the whole on each rank";
  EXPECT_NE(refused(2, [&](int64_t) { return part_of_pipeline(ends, 0, 2); }), "") << "no head";
  EXPECT_NE(refused(2, [&](int64_t) { return part_of_pipeline(ends, 1, 2); }), "") << "no embedding";
  EXPECT_NE(refused(1, [&](int64_t) { return part_of_pipeline(ends, 0, 2); }), "") << "half of it, alone";
  EXPECT_NE(refused(3, [&](int64_t) { return part_of_pipeline({1, 2, 4}, 1, 3); }), "") << "no ends";
}

TEST_F(L20_PipelineErrors, EndsThatAreNoCutsAreRefused) {
  const auto make = [&](const std::vector<int64_t>& ends) {
    Context context("cpu");
    Transformer(c, Allocate::Now, part_of_pipeline(ends, 1, 2));
  };
  expect_refused("", [&] { make({3, 2, 4, 4}); });
  expect_refused("", [&] { make({}); });
  expect_refused("", [&] { make({1, 2, 4}); });  // the last rank has one chunk fewer
}

TEST(L20_PipelineRefusals, PooledHeadsAndTokenTypesAreRefused) {
  TransformerConfig pooled = small_gpt(), types = small_gpt();
  pooled.output_head = OutputHead::Pooled, pooled.labels = 3, pooled.mask = Mask::None;
  types.token_types = 2;
  for (const TransformerConfig& c : {pooled, types})
    run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
      const std::string text = refusal([&] {
        PipelinePart part(comm, c, 2);
        std::vector<TextBatch> batches = random_micro_batches(c, 2);
        part.pipeline.run(gpipe(2, 2), batches, counted_targets(batches));
      });
      EXPECT_NE(text, "") << (c.token_types ? "token types" : "pooled");
      EXPECT_EQ(current().tape(), nullptr);
    });
}

// ---- errors in the middle ----

TEST_F(L20_PipelineErrors, ATokenThatIsTooLargeEndsAllRanks) {
  for (size_t micro = 0; micro < 4; ++micro)
    for (const bool is_target : {false, true})
      for (const int64_t chunks : {2, 4}) {
        std::vector<TextBatch> wrong = batches;
        (is_target ? wrong[micro].targets : wrong[micro].ids)[5] = int32_t(c.vocab);
        const std::string begins = is_target ? "rank 1: " : "rank 0: ";
        int caught = 0;
        const std::string text = refusal([&] {
          run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
            PipelinePart part(comm, c, chunks);
            try {
              part.pipeline.run(interleaved(2, 4, chunks / 2), wrong, targets);
            } catch (const Error&) {
              ++caught;
              throw;
            }
            part.pipeline.sum_tied_gradients();
          });
        });
        EXPECT_EQ(text.substr(0, begins.size()), begins) << text;
        EXPECT_EQ(caught, 1);
      }
}

// The tasks of a failed run must not mix with those of the next run.
TEST_F(L20_PipelineErrors, AnErrorOnAPipelineOfOneRankIsForgottenByTheNextRun) {
  const std::vector<TextBatch> some{batches[0], batches[1]};
  GradientsOf right;
  double right_loss = 0;
  for (const bool fails : {false, true})
    run_cluster({.ranks = 1, .seed = 7}, [&](Comm& comm) {
      PipelinePart part(comm, c, 1);
      if (fails) {
        std::vector<TextBatch> wrong = batches;
        wrong[2].ids[3] = int32_t(c.vocab);
        expect_refused("", [&] { part.pipeline.run(gpipe(1, 4), wrong, targets); });
        part.model.parameters.zero_grad();
      }
      const double loss = part.pipeline.run(one_forward_one_backward(1, 2), some, targets);
      EXPECT_EQ(current().tape(), nullptr);
      GradientsOf all;
      collect_gradients(part.model, all);
      if (!fails) right = all, right_loss = loss;
      EXPECT_EQ(all, right);
      EXPECT_EQ(loss, right_loss);
    });
}

// The same memory as after a run without an error.
TEST_F(L20_PipelineErrors, AnErrorOnOneRankLeavesNoActivations) {
  run_cluster({.ranks = 1, .seed = 7}, [&](Comm& comm) {
    PipelinePart part(comm, c, 1);
    part.pipeline.run(gpipe(1, 4), batches, targets);
    const Usage before = current().device.meter().now();
    std::vector<TextBatch> wrong = batches;
    wrong[2].targets[3] = int32_t(c.vocab);
    expect_refused("", [&] { part.pipeline.run(gpipe(1, 4), wrong, targets); });
    part.pipeline.run(gpipe(1, 4), batches, targets);
    EXPECT_EQ(current().device.meter().now(), before);
  });
}

TEST_F(L20_PipelineErrors, ARunOutOfMemoryNamesTheRankAndTheNextClusterRuns) {
  const std::vector<TextBatch> large = random_micro_batches(c, 4, 512);
  expect_refused("rank ", [&] {
    run_cluster({.ranks = 2, .seed = 7, .memory_budget = 6 << 20}, [&](Comm& comm) {
      PipelinePart part(comm, c, 4);
      part.pipeline.run(interleaved(2, 4, 2), large, counted_targets(large));
    });
  });
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    PipelinePart part(comm, c, 4);
    expect_step(comm, part, 4, "no memory");
  });
}

// In a context where a tape records, or recording is off.
TEST_F(L20_PipelineErrors, ARunWithinNoTapeOrAfterATapeIsTheSame) {
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    PipelinePart part(comm, c, 4);
    {
      const NoTape none;
      expect_step(comm, part, 4, "NoTape");
    }
    EXPECT_EQ(current().tape(), nullptr);
  });
}

}  // namespace
}  // namespace gradus
