#include "lessons/20_pipeline_parallel/runs.h"

#include <iostream>

#include "lessons/20_pipeline_parallel/choices.h"
#include "src/core/input_file.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/parallel/plan.h"

namespace gradus {

void LayoutRuns::with(const std::string& name, const PipelineSetting& set, const LayoutReference& alone,
                      bool row) {
  const Layout& l = set.layout;
  const int64_t m = set.schedule.micro_batches;
  const PlanSetting planned{.model = task_.model,
                            .layout = l,
                            .chunks_per_rank = set.schedule.chunks / l.pipeline,
                            .sequences = task_.batch / l.data / m,
                            .micro_batches = m,
                            .keep = set.keep};
  const Plan plan = plan_of(planned, set.schedule, measure_ranks(planned));
  args_.ranks = l.ranks();
  std::optional<PipelineRun> last;
  run_ranks(args_, [&](Comm& comm) {
    PipelineRun run = train_(comm, task_, set, alone);
    unlike_ += run.unlike;
    losses_ += run.losses != alone.losses;
    bytes_ += run.peak.allocated() != plan.peaks[size_t(comm.rank())];
    if (comm.rank() == 0 || args_.comm != "sim") last = std::move(run);
  });
  ++runs_;
  if (!row) return;
  ReportRow& r = report_.row(name);
  r.extra = {{"activations at peak of rank 0, bytes", double(last->peak[Kind::Activation])},
             {"peak, bytes", double(last->peak.allocated())},
             {"predicted peak, bytes", double(plan.peaks[size_t(this_rank(args_))])}};
  if (!current().device.has_data()) return;
  r.ms_per_step = summarize(last->seconds).median * 1e3;
  r.loss_last = last->losses.back();
}

void LayoutRuns::report(const std::string& name) {
  const std::string of = ", of " + std::to_string(runs_) + " runs";
  const bool data = current().device.has_data();
  report_.check_at_most(name + "parameters that differ bitwise from the single-device run" + of,
                        data ? double(unlike_) : NAN, 0);
  report_.check_at_most(name + "ranks whose losses differ from the single-device run" + of,
                        data ? double(losses_) : NAN, 0);
  report_.check_equal(
      name + "ranks whose peak differs from the prediction" + of, bytes_, 0,
      args_.comm == "sim" ? "" : "is for simulated ranks: processes have communication buffers of their own");
}

void layout_runs(RanksArgs args, ParallelTask task, const Loader& loader, const LayoutRuns::Train& train,
                 const std::string& file, Report& report) {
  LayoutRuns runs(args, task, train, report);
  const std::vector<Layout> all = layouts_of(args.ranks, task.model, task.batch);
  LayoutReference alone;
  for (const Layout& l : all) {
    task.model.dropout = l.context > 1 ? 0 : 0.1;
    const int64_t m = std::min<int64_t>(2, task.batch / l.data);
    alone = train_as(l, loader, task, m);
    const bool saves = current().device.has_data() && &l == &all.back();
    runs.with(l.text(), {l, one_forward_one_backward(l.pipeline, m), Keep::All, "", saves ? file : ""}, alone,
              false);
  }
  runs.report("layouts: ");
  if (!current().device.has_data()) return;
  // Every layout loads the file and saves it again: its bytes must not change.
  const std::string saved = read_text_file(file);
  int64_t other_files = 0;
  task.steps = 0;
  for (const Layout& l : all) {
    const PipelineSetting set{l, one_forward_one_backward(l.pipeline, 1), Keep::All, file, file};
    run_ranks(args, [&](Comm& comm) { train(comm, task, set, alone); });
    other_files += read_text_file(file) != saved;
  }
  report.check_equal(
      "layouts: training checkpoints that changed when loaded and saved, of " + std::to_string(all.size()),
      other_files, 0);
}

}  // namespace gradus
