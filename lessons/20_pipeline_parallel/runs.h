// The runs of this lesson, compared with a single-device run that adds numbers in the order of the ranks.
#pragma once
#include "lessons/20_pipeline_parallel/alone.h"
#include "src/train/report.h"

namespace gradus {

struct PipelineSetting {
  Layout layout;
  Schedule schedule;
  Keep keep = Keep::All;  // which activations of a block are kept until its backward pass
  std::string load = {}, save = {};
};
struct PipelineRun {
  std::vector<double> losses, seconds;  // per step
  int64_t unlike = 0;  // parameters, or shards of them, that differ bitwise from the reference
  Usage peak = {};
};

class LayoutRuns {
 public:
  using Train =
      std::function<PipelineRun(Comm&, const ParallelTask&, const PipelineSetting&, const LayoutReference&)>;
  LayoutRuns(const RanksArgs& args, const ParallelTask& task, Train train, Report& report)
      : args_(args), task_(task), train_(std::move(train)), report_(report) {}
  // Trains on ranks; compares with `alone` and with the predicted peaks. `row`: adds a row to the report.
  void with(const std::string& name, const PipelineSetting& set, const LayoutReference& alone, bool row);
  void report(const std::string& name);  // adds the checks of all runs

 private:
  RanksArgs args_;
  const ParallelTask& task_;
  Train train_;
  Report& report_;
  int64_t runs_ = 0, unlike_ = 0, losses_ = 0, bytes_ = 0;
};

// Every layout of `ranks` ranks; then each layout loads the training checkpoint of the last layout and saves
// it again.
void layout_runs(RanksArgs, ParallelTask, const Loader&, const LayoutRuns::Train&, const std::string& file,
                 Report&);

}  // namespace gradus
