// Each check of lesson 20 passes with the right values, and fails if a test plants a wrong value.
#include <cmath>

#include "lessons/20_pipeline_parallel/choices.h"
#include "lessons/20_pipeline_parallel/runs.h"
#include "lessons/20_pipeline_parallel/schedules.h"
#include "src/io/atomic_file.h"
#include "src/parallel/plan.h"
#include "tests/data/loader_testing.h"
#include "tests/folder_testing.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

const Layout kTwo{.pipeline = 2};
ParallelTask small_task() {
  ParallelTask task;
  task.model = {.vocab = 11, .context = 4, .layers = 2, .heads = 2, .channels = 8};
  task.batch = 2, task.steps = 2;
  return task;
}

// The failed checks of two ranks that return the results of the single-device run, changed by `plant`.
Names failed(const std::function<void(int64_t rank, PipelineRun&)>& plant) {
  Context context;
  const ParallelTask task = small_task();
  const Schedule schedule = one_forward_one_backward(2, 2);
  const Plan plan = plan_of({.model = task.model, .layout = kTwo, .micro_batches = 2});
  LayoutReference alone;
  alone.losses = {2, 1};
  return failed_checks([&](Report& report) {
    LayoutRuns runs(
        {}, task,
        [&](Comm& comm, const ParallelTask&, const PipelineSetting&, const LayoutReference&) {
          PipelineRun run{.losses = {2, 1}, .seconds = {0.1, 0.1}};
          run.peak.by_kind[int(Kind::Other)] = plan.peaks[size_t(comm.rank())];
          plant(comm.rank(), run);
          return run;
        },
        report);
    runs.with("run", {kTwo, schedule}, alone, true);
    runs.report("");
  });
}

TEST(L20_Checks, RunsOfEveryRank) {
  const Names tensors{"parameters that differ bitwise from the single-device run, of 1 runs"},
      losses{"ranks whose losses differ from the single-device run, of 1 runs"},
      bytes{"ranks whose peak differs from the prediction, of 1 runs"};
  EXPECT_EQ(failed([](int64_t, PipelineRun&) {}), Names{});
  for (const int64_t wrong : {0, 1}) {
    const auto planted = [&](const std::function<void(PipelineRun&)>& plant) {
      return failed([&](int64_t rank, PipelineRun& run) {
        if (rank == wrong) plant(run);
      });
    };
    EXPECT_EQ(planted([](PipelineRun& r) { r.unlike = 1; }), tensors);
    EXPECT_EQ(planted([](PipelineRun& r) { r.losses[0] = std::nextafter(2.0, 3.0); }), losses);
    EXPECT_EQ(planted([](PipelineRun& r) { r.losses.pop_back(); }), losses);
    EXPECT_EQ(planted([](PipelineRun& r) { ++r.peak.by_kind[int(Kind::Other)]; }), bytes);
  }
}

struct L20_Tables : FolderTest {};
TEST_F(L20_Tables, AFileThatALayoutSavesDifferently) {
  Context context;
  ParallelTask task = small_task();
  task.model.vocab = 256;
  const Corpus corpus = random_corpus(1000, 100);
  RanksArgs two;
  two.ranks = 2;
  std::map<std::string, std::vector<int64_t>> peaks;  // the predicted ones, of each layout
  for (const Layout& l : layouts_of(2, task.model, task.batch)) {
    TransformerConfig model = task.model;
    model.dropout = l.context > 1 ? 0 : 0.1;
    const int64_t m = std::min<int64_t>(2, task.batch / l.data);
    peaks[l.text()] =
        plan_of({.model = model, .layout = l, .sequences = task.batch / l.data / m, .micro_batches = m})
            .peaks;
  }
  const auto failed_with = [&](const char* saved_again) {
    return failed_checks([&](Report& report) {
      layout_runs(
          two, task, Loader(corpus, task.model.context, 1),
          [&](Comm& comm, const ParallelTask&, const PipelineSetting& set, const LayoutReference& alone) {
            if (comm.rank() == 0 && !set.save.empty())
              write_file(set.save, set.load.empty() ? "saved" : saved_again);
            PipelineRun run{.losses = alone.losses, .seconds = {0.1}};
            run.peak.by_kind[int(Kind::Other)] = peaks.at(set.layout.text())[size_t(comm.rank())];
            return run;
          },
          path("weights"), report);
    });
  };
  EXPECT_EQ(failed_with("saved"), Names{});
  EXPECT_EQ(failed_with("savee"),
            Names{"layouts: training checkpoints that changed when loaded and saved, of 4"});
}

TEST(L20_Checks, OfSchedulesAndPublishedModels) {
  const Checked of_schedules(SchedulesOff{9, 0, 0, 0}, check_schedules);
  EXPECT_EQ(of_schedules([](SchedulesOff& off) { off.bubbles = 1; }),
            Names{"(a) bubbles that differ from the formula, of 9 schedules"});
  EXPECT_EQ(of_schedules([](SchedulesOff& off) { off.simulated = 1; }),
            Names{"(a) bubbles on simulated ranks that differ from the formula, of 9 schedules"});
  EXPECT_EQ(of_schedules([](SchedulesOff& off) { off.in_flight = 1; }),
            Names{"(a) ranks whose number in flight differs from the formula, of 9 schedules"});
  const Checked of_models(PublishedOff{0, 0, 0.7, 1.4}, check_published);
  EXPECT_EQ(of_models([](PublishedOff& off) { off.counts = 1; }),
            Names{"(b) models whose number of parameters differs from the paper, of 7"});
  EXPECT_EQ(of_models([](PublishedOff& off) { off.too_large = 1; }),
            Names{"(b) models whose largest peak exceeds 80 GB (74.5 GiB), of 7"});
  EXPECT_EQ(of_models([](PublishedOff& off) { off.least_ratio = 0.69; }),
            Names{"(b) predicted / published seconds, smallest, 175B and larger"});
  EXPECT_EQ(of_models([](PublishedOff& off) { off.most_ratio = 1.41; }),
            Names{"(b) predicted / published seconds, largest, 175B and larger"});
}

TEST(L20_Checks, OfCuts) {
  const auto failed = [](Plan (*plan)(const PlanSetting&)) {
    return failed_checks([&](Report& report) { cuts_table(report, plan); });
  };
  EXPECT_EQ(failed(plan_of), Names{});
  EXPECT_EQ(failed([](const PlanSetting& set) {
              Plan plan = plan_of(set);
              if (set.ends != even_cuts(12, 4)) plan.bubble = 0.9;
              return plan;
            }),
            Names{"(c) bubble, by cost / bubble, equal numbers of blocks"});
}

TEST_F(L20_Tables, SchedulesHoldAsMeasured) {
  Context context("meta");
  EXPECT_EQ(failed_checks([&](Report& report) { schedules_table(path("plot.svg"), report); }), Names{});
  EXPECT_NE(read("plot.svg").find("interleaved, 2 chunks per rank"), std::string::npos);
}

}  // namespace
}  // namespace gradus
