// The runs of this lesson, compared with one device that adds as the ranks do.
#pragma once
#include "lessons/20_pipeline_parallel/alone.h"
#include "src/train/report.h"

namespace gradus {

struct PipelineSetting {
  Layout layout;
  Schedule schedule;
  Keep keep = Keep::All;  // of each block, until its backward pass
  std::string load = {}, save = {};
};
struct PipelineRun {
  std::vector<double> losses, seconds;  // of each step
  int64_t unlike = 0;  // parameters, or parts of them, that differ from the reference in any bit
  Usage peak = {};
};

class LayoutRuns {
 public:
  using Train =
      std::function<PipelineRun(Comm&, const ParallelTask&, const PipelineSetting&, const LayoutReference&)>;
  LayoutRuns(const RanksArgs& args, const ParallelTask& task, Train train, Report& report)
      : args_(args), task_(task), train_(std::move(train)), report_(report) {}
  // A row of the report; the plan's bytes must be those of every rank.
  void with(const std::string& name, const PipelineSetting& set, const LayoutReference& alone, bool row);
  void report(const std::string& name);

 private:
  RanksArgs args_;
  const ParallelTask& task_;
  Train train_;
  Report& report_;
  int64_t runs_ = 0, unlike_ = 0, losses_ = 0, bytes_ = 0;
};

// (b) Pipelines of 2 and 4 ranks. (c) Every layout of `ranks` ranks; all load the file that the last one
// saved.
void pipeline_runs(const RanksArgs&, ParallelTask, const Loader&, const LayoutRuns::Train&, Report&);
void layout_runs(RanksArgs, ParallelTask, const Loader&, const LayoutRuns::Train&, const std::string& file,
                 Report&);

}  // namespace gradus
