// (c) Training with optimizer states on the host when the device has no room for them.
#pragma once
#include "lessons/12_lora/adapt.h"
#include "src/tensor/pager.h"

namespace gradus {

struct PagedRun {
  bool completed = false;
  Weights weights = {};  // at the end; empty on a device without data
  ReportRow row = {};
  Pager::Moved moved = {};
  int64_t states = 0;  // bytes of all states
  int64_t host() const {
    return row.host_peak ? (*row.host_peak)[Kind::Optimizer] : 0;
  }  // at the host's peak
};
struct PagedRuns {
  int64_t steps, budget;
  PagedRun free;    // without a budget
  PagedRun failed;  // with a budget that is too small for the states
  PagedRun paged;   // with this budget and paged states
};
// The three runs do the same steps.
PagedRuns measure_paged_runs(const Lesson& lesson);
// Checks that the paged run completes, and that its weights are bitwise equal to those of the first run.
void paged_runs(const PagedRuns& runs, Report& report);

}  // namespace gradus
