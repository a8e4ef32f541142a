// For tests of plans: the needs of a real run of a layout.
#pragma once
#include "src/parallel/plan.h"
#include "tests/parallel/layout_testing.h"

namespace gradus {

inline Schedule usual_schedule(const PlanSetting& set) {
  return set.chunks_per_rank > 1 ? interleaved(set.layout.pipeline, set.micro_batches, set.chunks_per_rank)
                                 : one_forward_one_backward(set.layout.pipeline, set.micro_batches);
}

// The peaks of some steps, including the rank's first allocations.
inline std::vector<Usage> measured_peaks(const PlanSetting& set, const Schedule& schedule, const char* device,
                                         int64_t steps = 2) {
  std::vector<Usage> peaks(size_t(set.layout.ranks()));
  run_cluster({.ranks = set.layout.ranks(), .device = device, .seed = 7}, [&](Comm& comm) {
    const std::vector<int64_t> ends =
        set.ends.empty() ? even_cuts(set.model.layers, schedule.chunks) : set.ends;
    RankModel rank(comm, set.layout, set.model, ends, set.sequence);
    if (set.keep != Keep::All) rank.model.segments.assign(rank.model.blocks.size(), {1, set.keep});
    rank.initialize(3);
    AdamW optimizer(rank.zero.shards);
    const LayoutSetting batches{
        .name = "", .model = set.model, .sequences = set.sequences * set.micro_batches * set.layout.data};
    for (int64_t step = 0; step < steps; ++step) {
      rank.model.parameters.zero_grad();
      rank.run(schedule, rank.micro_batches(batch_of(batches, step), set.micro_batches), batches.targets());
      optimizer.step(1e-3);
    }
    peaks[size_t(comm.rank())] = current().device.meter().at_peak();
  });
  return peaks;
}

inline PlanSetting plan_setting(const Layout& layout, int64_t micro_batches = 4,
                                const TransformerConfig& model = gpt_of_layouts()) {
  return {.model = model, .layout = layout, .sequences = 2, .micro_batches = micro_batches};
}
}  // namespace gradus
