// Errors that no other test of lesson 20 finds: bytes that a pipeline keeps too long, which a plan also
// contains, because it is measured with the same code; and the lesson's own code, which otherwise only its
// program runs.
#include <sstream>

#include "lessons/20_pipeline_parallel/alone.h"
#include "lessons/20_pipeline_parallel/choices.h"
#include "lessons/20_pipeline_parallel/schedules.h"
#include "src/train/text.h"
#include "tests/parallel/plan_testing.h"

namespace gradus {
namespace {

// ---- bytes ----

TransformerConfig model() { return gpt_of_layouts(); }
// On each rank, with one block per rank, of which only the input is kept.
std::vector<std::vector<TaskUse>> uses_of(const Schedule& s) {
  std::vector<std::vector<TaskUse>> all(size_t(s.ranks()));
  const LayoutSetting set{.name = "", .model = model(), .sequences = 2 * s.micro_batches};
  run_cluster({.ranks = s.ranks(), .seed = 7}, [&](Comm& comm) {
    Transformer m(set.model, Allocate::Now,
                  part_of_pipeline(even_cuts(set.model.layers, s.chunks), comm.rank(), comm.size()));
    m.initialize(3);
    Pipeline pipeline(comm, m);
    m.segments.assign(m.blocks.size(), {1, Keep::Input});
    pipeline.uses = &all[size_t(comm.rank())];
    pipeline.run(s, batch_of(set, 0).parts(even_split(set.sequences, s.micro_batches)), set.targets());
  });
  return all;
}

TEST(L20_PipelineBytes, AMicroBatchInFlightKeepsTheInputOfItsBlockAndNothingElse) {
  const int64_t message = round_up(2 * model().context * model().channels * 4, 512);
  const auto all = uses_of(gpipe(4, 5));
  for (const size_t rank : {1u, 2u})
    for (size_t i = 2; i < 5; ++i)
      EXPECT_EQ(all[rank][i].before - all[rank][i - 1].before, message) << "rank " << rank << ", F" << i;
}

TEST(L20_PipelineBytes, ABackwardPassLeavesNothingOfItsMicroBatch) {
  Schedule s = gpipe(4, 4);  // one micro-batch after the other
  for (int64_t rank = 0; rank < 4; ++rank) {
    s.of_rank[size_t(rank)].clear();
    for (int64_t i = 0; i < 4; ++i)
      s.of_rank[size_t(rank)].push_back({Pass::Forward, i, rank}),
          s.of_rank[size_t(rank)].push_back({Pass::Backward, i, rank});
  }
  const auto all = uses_of(s);
  for (size_t rank = 0; rank < 3; ++rank)  // the last rank keeps the losses
    for (size_t i = 2; i + 3 < 8;
         ++i)  // the first backward pass allocates the gradients; the last task has no next one
      EXPECT_EQ(all[rank][i].before, all[rank][i + 2].before) << "rank " << rank << ", task " << i;
}

TEST(L20_PipelineBytes, GatheringAgainNeedsLessThanKeepingWhatWasGathered) {
  TransformerConfig c = gpt_of_layouts();
  c.context = 32, c.channels = 32;
  PlanSetting set = plan_setting({.pipeline = 2, .tensor = 2}, 4, c);
  set.sequence = Sequence::KeepGathered;
  const Plan kept = plan_of(set);
  set.sequence = Sequence::GatherAgain;
  const Plan again = plan_of(set);
  for (size_t r = 0; r < 2; ++r) EXPECT_LT(again.peaks[r], kept.peaks[r]) << "rank " << r;
}

// ---- seconds of a plan ----

TEST(L20_PlanTimes, TheSlowestRankEndsTheStepWhicheverItIs) {
  const PlanSetting set = plan_setting({.pipeline = 2, .data = 2});
  for (size_t slow = 0; slow < 4; ++slow) {
    std::vector<RankUse> uses = measure_ranks(set);
    const double before = plan_of(set, usual_schedule(set), uses).seconds;
    uses[slow].step_seconds += 1e6;
    EXPECT_GT(plan_of(set, usual_schedule(set), uses).seconds, before + 1e6 - 1) << "rank " << slow;
  }
}

TEST(L20_PlanTimes, AMessageTakesTheTimeOfItsBytesNotOfItsBuffer) {
  TransformerConfig c = gpt_of_layouts();
  c.channels = 20;  // 640 bytes; the allocator's block has 1024
  PlanSetting set = plan_setting({.pipeline = 2}, 2, c);
  set.sequences = 1, set.network = {.name = "", .source = "", .link = {.latency = 0, .bandwidth = 640}};
  const std::vector<RankUse> uses = measure_ranks(set);
  const double one = plan_of(set, schedule_of_text("F0 B0\nF0 B0"), uses).seconds,
               two = plan_of(set, schedule_of_text("F0 B0 F1 B1\nF0 B0 F1 B1"), uses).seconds;
  EXPECT_NEAR(two - one, 2, 1e-9) << "a message takes a second there, and one back";
}

// ---- the lesson's code ----

TEST(L20_Alone, AddsAsTheRanksOfALayoutDo) {
  ParallelTask task;
  task.model.context = 8, task.model.layers = 2, task.model.heads = 2, task.model.channels = 8;
  task.batch = 4, task.steps = 2, task.text_bytes = 20'000;
  const Text text = load_text("", task.text_bytes, task.seed);
  const Loader loader(text.corpus, task.model.context, task.seed);
  for (const Layout& l :
       {Layout{}, Layout{.pipeline = 2}, Layout{.data = 2}, Layout{.tensor = 2}, Layout{.context = 2},
        Layout{.pipeline = 2, .tensor = 2}, Layout{2, 2, 2, 1}, Layout{2, 1, 1, 2}}) {
    task.model.dropout = l.context > 1 ? 0 : 0.1;
    Context context("cpu", task.seed);
    const LayoutReference alone = train_as(l, loader, task, 2);
    run_cluster({.ranks = l.ranks(), .seed = task.seed}, [&](Comm& comm) {
      RankModel rank(comm, l, task.model, even_cuts(task.model.layers, l.pipeline));
      rank.initialize(task.seed);
      AdamW optimizer(rank.zero.shards);
      for (int64_t step = 0; step < task.steps; ++step) {
        rank.model.parameters.zero_grad();
        const std::vector<TextBatch> own = rank.micro_batches(read_shard(loader, task, step, 0, 1), 2);
        const double loss = rank.run(one_forward_one_backward(l.pipeline, 2), own, 4 * task.model.context);
        EXPECT_EQ(loss, alone.losses[size_t(step)]) << l.text() << ", step " << step;
        optimizer.step(task.learning_rate);
      }
      for (const Parameter& p : rank.model.parameters) {
        const std::vector<double>& whole = alone.weights.at(p.name);
        EXPECT_EQ(to_host<double>(p.value), p.shard ? p.shard->of_values(whole) : whole)
            << l.text() << ", rank " << comm.rank() << ", " << p.name;
      }
    });
  }
}

TEST(L20_Pictures, ATimelineHasAColumnPerUnitOfTime) {
  const auto drawn = [](const Schedule& s, const ChunkTimes& times) {
    std::ostringstream out;
    print_timeline(out, s, play(s, std::vector<ChunkTimes>(size_t(s.chunks), times)));
    return out.str();
  };
  EXPECT_EQ(drawn(one_forward_one_backward(2, 2), {1, 2}),
            "  rank 0  F0F1....B0==..B1==\n  rank 1  ..F0B0==F1B1==....\n");
  EXPECT_EQ(drawn(schedule_of_text("F0 F0.2 B0.2 B0\nF0 F0.3 B0.3 B0"), {0.5, 1}),
            "  rank 0  F0  ....F0.2............B0.2====........B0======\n  rank 1  ....F0  "
            "....F0.3B0.3====........B0======........\n")
      << "with two chunks per rank the shortest pass is half as long";
}

TEST(L20_Choices, LayoutsDivideTheHeadsAndHaveABlockPerStage) {
  TransformerConfig c = gpt_of_layouts();
  c.heads = 2, c.layers = 4;
  const std::vector<Layout> all = layouts_of(8, c, 8);
  EXPECT_FALSE(all.empty());
  for (const Layout& l : all) {
    EXPECT_EQ(l.ranks(), 8) << l.text();
    EXPECT_TRUE(l.tensor <= 2 && l.pipeline <= 4 && l.context <= 2) << l.text();
  }
}

}  // namespace
}  // namespace gradus
