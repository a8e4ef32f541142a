// The checks of the lesson's runs.
#pragma once
#include <array>

#include "lessons/05_allocator/findings.h"
#include "lessons/05_allocator/workload.h"

namespace gradus {

// Runs of GPT-2 with `steps` steps: without a cure, without a cure on a GPU of 8 GiB, and with a cure.
void check_naive(const WorkloadRun& naive, const WorkloadRun& limited, int64_t steps, Report& report);
void check_cure(const Cure& cure, const WorkloadRun& run, int64_t steps, Report& report);
// Runs of the small model, each on the device and on meta.
void check_small(const std::vector<std::array<WorkloadRun, 2>>& runs, Report& report);

// The findings in one memory history.
struct Found {
  std::vector<Leak> leaks;
  std::optional<Spike> spike;  // the largest short-lived block at the peak, even if it is small
  bool has_large_spike() const { return spike && spike->share() >= 0.25; }
};
void check_clean(const Found& found, Report& report);
// The history has a leak of wte.weight.grad, and in step `spike_step` a spike with the name "differences".
void check_faults(const Found& found, int64_t spike_step, Report& report);

}  // namespace gradus
