#include "lessons/05_allocator/checks.h"

namespace gradus {

constexpr int64_t kLongEnough = 100;  // steps, so that long batches have come

void check_naive(const WorkloadRun& naive, const WorkloadRun& limited, int64_t steps, Report& report) {
  const std::string skip = needs_steps(kLongEnough, steps);
  report.check_at_least("naive: peak allocated, bytes", double(naive.peak.allocated()), 1 << 30);
  report.check_at_least("naive: fragmentation (reserved / allocated)", naive.ratio(), 1.1, skip);
  report.check_at_least("naive, 8 GiB GPU: device frees", double(limited.device_frees), 1, skip);
}

void check_cure(const Cure& cure, const WorkloadRun& run, int64_t steps, Report& report) {
  const double most = cure.expandable && !cure.warmed_up ? 1.15 : 1.1;  // the page says why
  report.check_at_most(cure.name + ": fragmentation (reserved / allocated)", run.ratio(), most,
                       needs_steps(kLongEnough, steps));
  if (cure.padded || cure.warmed_up)
    report.check_equal(cure.name + ": device allocations after step 2", run.late_allocations, 0);
  else if (cure.expandable)
    report.check_at_most(cure.name + ": device allocations while the batch is not longer",
                         double(run.repeat_allocations), 4);
}

void check_small(const std::vector<std::array<WorkloadRun, 2>>& runs, Report& report) {
  int64_t different = 0;
  for (const auto& [on_device, on_meta] : runs)
    different +=
        on_device.reserved != on_meta.reserved || on_device.device_allocations != on_meta.device_allocations;
  report.check_equal("small: runs whose reserved bytes or device allocations differ on meta", different, 0);
}

void check_clean(const Found& found, Report& report) {
  report.check_equal("without faults: leaks found", int64_t(found.leaks.size()), 0);
  report.check_equal("without faults: spikes found", found.has_large_spike(), 0);
}

void check_faults(const Found& found, int64_t spike_step, Report& report) {
  const bool leak = found.leaks.size() == 1 && found.leaks[0].name == "wte.weight.grad",
             spike = found.has_large_spike() && found.spike->name == "differences" &&
                     found.spike->step == spike_step;
  report.check_equal("with two faults: leak of wte.weight.grad found", leak, 1);
  report.check_equal("with two faults: spike 'differences' found", spike, 1);
}

}  // namespace gradus
