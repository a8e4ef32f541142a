// The lesson's checks of what its runs gave.
#pragma once
#include <array>

#include "lessons/05_allocator/findings.h"
#include "lessons/05_allocator/stream.h"

namespace gradus {

// GPT-2, of so many steps: without a cure, the same on a card of 8 GiB, and with a cure.
void check_naive(const StreamRun& naive, const StreamRun& card, int64_t steps, Report& report);
void check_cure(const Cure& cure, const StreamRun& run, int64_t steps, Report& report);
// Each run of the small model on the device and on meta.
void check_small(const std::vector<std::array<StreamRun, 2>>& runs, Report& report);

// What is found in a memory history.
struct Found {
  std::vector<Leak> leaks;
  std::optional<Spike> spike;  // the largest short-lived block, however small
  bool has_large_spike() const { return spike && spike->share() >= 0.25; }
};
void check_clean(const Found& found, Report& report);
// With a leak of wte.weight.grad, and in step `spike_step` a spike called "differences".
void check_faults(const Found& found, int64_t spike_step, Report& report);

}  // namespace gradus
