#include "lessons/05_allocator/checks.h"

namespace gradus {

constexpr int64_t kLongEnough = 100;  // steps, for long batches to have come

void check_naive(const StreamRun& naive, const StreamRun& card, int64_t steps, Report& report) {
  const std::string skip = needs_steps(kLongEnough, steps);
  report.check_at_least("naive: bytes alive at the peak", double(naive.peak.allocated()), 1 << 30);
  report.check_at_least("naive: reserved ÷ allocated", naive.ratio(), 1.1, skip);
  report.check_at_least("card of 8 GiB: segments given back, and asked for again", double(card.given_back), 1,
                        skip);
}

void check_cure(const Cure& cure, const StreamRun& run, int64_t steps, Report& report) {
  const double most = cure.expandable && !cure.warmed_up ? 1.15 : 1.1;  // the page says why
  report.check_at_most(cure.name + ": reserved ÷ allocated", run.ratio(), most,
                       needs_steps(kLongEnough, steps));
  if (cure.padded || cure.warmed_up)
    report.check_equal(cure.name + ": requests after step 2", run.late_requests, 0);
  else if (cure.expandable)
    report.check_at_most(cure.name + ": requests for no longer batch", double(run.repeat_requests), 4);
}

void check_small(const std::vector<std::array<StreamRun, 2>>& runs, Report& report) {
  int64_t different = 0;
  for (const auto& [on_device, on_meta] : runs)
    different += on_device.reserved != on_meta.reserved || on_device.requests != on_meta.requests;
  report.check_equal("small: rows that reserve other bytes than meta", different, 0);
}

void check_clean(const Found& found, Report& report) {
  report.check_equal("clean: leaks found", int64_t(found.leaks.size()), 0);
  report.check_equal("clean: spikes found", found.has_large_spike(), 0);
}

void check_faults(const Found& found, int64_t spike_step, Report& report) {
  const bool leak = found.leaks.size() == 1 && found.leaks[0].name == "wte.weight.grad",
             spike = found.has_large_spike() && found.spike->name == "differences" &&
                     found.spike->step == spike_step;
  report.check_equal("with two faults: the leak found, by name", leak, 1);
  report.check_equal("with two faults: the spike found, by name", spike, 1);
}

}  // namespace gradus
