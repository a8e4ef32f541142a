// Each check of lesson 20 passes with the right values, and fails if a test plants a wrong value.
#include <cmath>

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
  const auto failed_with = [&](const char* saved_again) {
    return failed_checks([&](Report& report) {
      layout_runs(
          two, task, Loader(corpus, task.model.context, 1),
          [&](Comm& comm, const ParallelTask&, const PipelineSetting& set, const LayoutReference&) {
            if (comm.rank() == 0 && !set.save.empty())
              write_file(set.save, set.load.empty() ? "saved" : saved_again);
            return PipelineRun{};
          },
          path("weights"), report);
    });
  };
  const std::string check = "layouts: training checkpoints that changed when loaded and saved, of 4";
  const auto fails = [&](const Names& names) { return std::count(names.begin(), names.end(), check); };
  EXPECT_EQ(fails(failed_with("saved")), 0);
  EXPECT_EQ(fails(failed_with("savee")), 1);
}

TEST_F(L20_Tables, SchedulesHoldAsMeasured) {
  Context context("meta");
  EXPECT_EQ(failed_checks([&](Report& report) { schedules_table(path("plot.svg"), report); }), Names{});
  EXPECT_NE(read("plot.svg").find("interleaved, 2 chunks per rank"), std::string::npos);
}

}  // namespace
}  // namespace gradus
