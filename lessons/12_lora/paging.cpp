#include "lessons/12_lora/paging.h"

#include <iostream>

#include "src/core/table.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/step_recorder.h"

namespace gradus {

constexpr int64_t kMiB = int64_t(1) << 20;

struct Steps {
  TransformerConfig model;
  int64_t batch, steps;
};
static PagedRun train_within(const Lesson& lesson, const Steps& s, int64_t budget, bool host) {
  LessonContext context(lesson, lesson.device, budget);
  if (host) context.add_host();
  PagedRun run;
  try {
    Transformer model(s.model);
    model.initialize(lesson.seed);
    AdamW optimizer(model.parameters);
    const DummyBatch batch = dummy_batch(s.model, s.batch, s.model.context);
    StepRecorder recorder;
    for (int64_t step = 0; step < s.steps; ++step) {
      recorder.begin();
      Tape tape;
      const Tensor loss = batch.loss(model);
      model.parameters.zero_grad();
      tape.backward(loss);
      optimizer.step(1e-3);
      recorder.end();
    }
    recorder.fill(run.row, s.batch * s.model.context);
    for (const Parameter& p : model.parameters) {
      run.states += 8 * p.value.numel();
      if (context.device.has_data()) run.weights.push_back(to_host<double>(p.value));
    }
    if (optimizer.pager) run.moved = optimizer.pager->moved();
    if (host) run.row.host_peak = context.host->meter().at_peak();
    run.completed = true;
  } catch (const OutOfMemory&) {
  }
  return run;
}

PagedRuns measure_paged_runs(const Lesson& lesson) {
  Steps s{{.context = 32, .layers = 4, .heads = 4, .channels = 256}, 4, 10};
  if (std::string_view(current().device.name()) == "emu")
    s = {{.context = 8, .layers = 2, .heads = 4, .channels = 128}, 1, 3};
  PagedRun free = train_within(lesson, s, 0, false);
  // The budget has room for about a quarter of the states.
  const int64_t budget = *free.row.reserved_bytes - free.states * 3 / 4 / kMiB * kMiB;
  return {s.steps, budget, std::move(free), train_within(lesson, s, budget, false),
          train_within(lesson, s, budget, true)};
}

void paged_runs(const PagedRuns& runs, Report& report) {
  Table table({count_text(runs.steps) + " steps, optimizer states of " + bytes_text(runs.free.states),
               "budget", "reserved", "states on the host", "moved per step", "ms/step", "ms of moving"});
  const bool has_data = current().device.has_data();
  const auto row = [&](const char* name, const PagedRun& run, int64_t limit) {
    if (!run.completed) return table.row({name, bytes_text(limit), "out of memory", "", "", "", ""});
    table.row({name, limit ? bytes_text(limit) : "none", bytes_text(*run.row.reserved_bytes),
               bytes_text(run.host()), bytes_text((run.moved.bytes_out + run.moved.bytes_in) / runs.steps),
               has_data ? number_text(*run.row.ms_per_step) : "",
               has_data ? number_text(run.moved.seconds * 1e3 / double(runs.steps)) : ""});
  };
  row("no budget", runs.free, 0);
  row("budget, states not paged", runs.failed, runs.budget);
  row("budget, paged states", runs.paged, runs.budget);
  std::cout << "\n(c) Paged optimizer states of a larger model: " << count_text(runs.free.states / 8)
            << " parameters\n\n"
            << table;
  const PagedRun& paged = runs.paged;
  ReportRow& reported = report.row("(c) larger model, paged");
  reported.peak = paged.row.peak, reported.reserved_bytes = paged.row.reserved_bytes;
  reported.host_peak = paged.row.host_peak;
  report.check_equal("(c) budget, states not paged: completed runs", runs.failed.completed, 0);
  report.check_equal("(c) budget, paged states: completed runs", paged.completed, 1);
  report.check_at_least("(c) budget, paged states: optimizer states on the host, bytes", double(paged.host()),
                        1);
  const double differs = runs.free.weights.empty() ? NAN : double(paged.weights != runs.free.weights);
  report.check_at_most("(c) paged states: weights that differ bitwise from the run without budget", differs,
                       0);
}

}  // namespace gradus
