#include "lessons/05_allocator/workload.h"

#include <algorithm>
#include <cmath>

#include "src/core/rng.h"
#include "src/memory/device_timing.h"
#include "src/optim/optimizer.h"
#include "src/tensor/profile_range.h"
#include "src/train/dummy.h"

namespace gradus {

std::vector<int64_t> draw_lengths(const Workload& workload, int64_t steps, uint64_t seed) {
  Rng rng(seed, 500);
  std::vector<int64_t> lengths;
  for (int64_t step = 0; step < steps; ++step) {
    const double T = double(workload.median) * std::exp(workload.spread * rng.normal());
    lengths.push_back(std::clamp(std::llround(T), (long long)workload.shortest, (long long)workload.longest));
  }
  return lengths;
}

// The number of segments, and of pages of expandable segments, that the allocator holds now.
static int64_t held(const Allocator& allocator) {
  int64_t count = 0;
  for (const auto& [serial, s] : allocator.segments()) count += s.page > 0 ? s.bytes / s.page : 1;
  return count;
}

WorkloadRun run_workload(const Workload& workload, const Cure& cure, int64_t steps, uint64_t seed,
                         const Between& between) {
  Device& device = current().device;
  Allocator& allocator = device.allocator();
  allocator.set_expandable(cure.expandable);
  if (cure.budget > 0) allocator.set_budget(cure.budget);
  Transformer model(workload.model);
  model.initialize(seed);
  AdamW optimizer(model.parameters);
  std::vector<int64_t> lengths = draw_lengths(workload, steps, seed);
  if (cure.padded) std::fill(lengths.begin(), lengths.end(), workload.longest);
  if (cure.warmed_up)
    std::fill(lengths.begin(), lengths.begin() + std::min<int64_t>(steps, 2), workload.longest);
  if (cure.third > 0 && steps > 2) lengths[2] = cure.third;
  const int64_t first_late = cure.third > 0 ? 3 : 2;
  WorkloadRun run;
  std::vector<double> seconds;
  int64_t longest_yet = 0;
  try {
    for (int64_t step = 0; step < steps; ++step) {
      const double start = seconds_now(device);
      const int64_t T = lengths[size_t(step)], allocations = device.meter().device_requests();
      const DummyBatch batch = dummy_batch(workload.model, workload.batch, T, seed);
      Tape tape;
      const Tensor loss = batch.loss(model);
      if (between) {
        const ProfileRange range("between");
        between(step, model, tape);
      }
      model.parameters.zero_grad();
      tape.backward(loss);
      optimizer.step(1e-3);
      if (cure.empty_every > 0 && (step + 1) % cure.empty_every == 0) allocator.empty_cache();
      const double took = seconds_now(device) - start;
      const int64_t new_ones = device.meter().device_requests() - allocations;
      if (step >= 2) seconds.push_back(took);
      if (step >= first_late) run.late_allocations += new_ones;
      if (step >= 2 && T <= longest_yet) run.repeat_allocations += new_ones;
      // Without the first step: the gradients have kept the memory of its forward pass since then.
      if (step >= 1) longest_yet = std::max(longest_yet, T);
    }
  } catch (const OutOfMemory&) {
    if (cure.budget == 0) throw;  // the user's limit (--memory), not the lesson's
    run.out_of_memory = 1;
  }
  const Meter& meter = device.meter();
  run.peak = meter.at_peak();
  run.reserved = meter.peak_reserved();
  run.device_allocations = meter.device_requests();
  run.device_frees = run.device_allocations - held(allocator);
  run.step_seconds = summarize(seconds).median;
  return run;
}

WorkloadRun run_on_meta(const Workload& workload, const Cure& cure, int64_t steps, uint64_t first_seed,
                        uint64_t workloads) {
  WorkloadRun worst;
  for (uint64_t i = 0; i < workloads; ++i) {
    Context context("meta");
    const WorkloadRun run = run_workload(workload, cure, steps, first_seed + i);
    if (i == 0 || run.ratio() > worst.ratio()) worst.peak = run.peak, worst.reserved = run.reserved;
    for (int64_t WorkloadRun::*count : {&WorkloadRun::device_allocations, &WorkloadRun::late_allocations,
                                        &WorkloadRun::repeat_allocations, &WorkloadRun::device_frees})
      worst.*count = std::max(worst.*count, run.*count);
    worst.out_of_memory += run.out_of_memory;
  }
  return worst;
}

}  // namespace gradus
