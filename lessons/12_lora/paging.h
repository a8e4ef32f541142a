// (c) Training with the optimizer's states on the host while the device has no room for them.
#pragma once
#include "lessons/12_lora/adapt.h"
#include "src/tensor/pager.h"

namespace gradus {

struct PagedRun {
  bool completed = false;
  Weights weights = {};  // at the end; none on a device without data
  ReportRow row = {};
  Pager::Moved moved = {};
  int64_t states = 0;  // bytes of all states
  int64_t host() const { return row.host_peak ? (*row.host_peak)[Kind::Optimizer] : 0; }  // the most there
};
struct PagedRuns {
  int64_t steps, budget;
  PagedRun free, failed,
      paged;  // without a budget; with one that the states exceed: without a host, and with
};
// The same steps each time.
PagedRuns measure_paged_runs(const Lesson& lesson);
// Checks that the last completes, and that its weights are equal to the bit.
void paged_runs(const PagedRuns& runs, Report& report);

}  // namespace gradus
