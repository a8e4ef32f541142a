#include "lessons/03_transformer/checks.h"

namespace gradus {

void check_trained(const TrainedGpt& t, Report& report) {
  const StepRecorder& run = t.run;
  const int64_t N = t.parameters, steps = int64_t(run.losses.size());
  report.check_equal("bytes of weights, 4 per parameter", run.peak[Kind::Weight], 4 * N);
  report.check_equal("bytes of gradients, 4 per parameter", t.gradient_bytes, 4 * N);
  report.check_equal("bytes of AdamW's states, 8 per parameter", run.peak[Kind::Optimizer], 8 * N);
  report.check_equal("device allocations after step 2",
                     run.requests.back() - run.requests[std::min<size_t>(run.requests.size(), 2) - 1], 0,
                     needs_steps(3, steps));
  report.check_at_most("last loss; bound: first loss", run.recent_loss(), run.losses.front(),
                       needs_steps(20, steps));
  if (!t.floor) return;
  report.check_at_least("held-out loss / entropy floor, lower bound (1 % for chance)", t.held_out / *t.floor,
                        0.99);
  report.check_at_most("held-out loss / entropy floor, upper bound", t.held_out / *t.floor, 1.05,
                       t.nears_floor ? needs_steps(3000, steps) : "is for --size=small");
}

}  // namespace gradus
