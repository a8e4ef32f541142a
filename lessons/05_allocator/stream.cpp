#include "lessons/05_allocator/stream.h"

#include <algorithm>
#include <cmath>

#include "src/core/rng.h"
#include "src/memory/device_timing.h"
#include "src/optim/optimizer.h"
#include "src/tensor/profile_range.h"
#include "src/train/dummy.h"

namespace gradus {

std::vector<int64_t> draw_lengths(const Stream& stream, int64_t steps, uint64_t seed) {
  Rng rng(seed, 500);
  std::vector<int64_t> lengths;
  for (int64_t step = 0; step < steps; ++step) {
    const double T = double(stream.median) * std::exp(stream.spread * rng.normal());
    lengths.push_back(std::clamp(std::llround(T), (long long)stream.shortest, (long long)stream.longest));
  }
  return lengths;
}

// Segments, and pages of expandable segments, that the device has handed out and not got back.
static int64_t held(const Allocator& allocator) {
  int64_t count = 0;
  for (const auto& [serial, s] : allocator.segments()) count += s.page > 0 ? s.bytes / s.page : 1;
  return count;
}

StreamRun run_stream(const Stream& stream, const Cure& cure, int64_t steps, uint64_t seed,
                     const Between& between) {
  Device& device = current().device;
  Allocator& allocator = device.allocator();
  allocator.set_expandable(cure.expandable);
  if (cure.budget > 0) allocator.set_budget(cure.budget);
  Transformer model(stream.model);
  model.initialize(seed);
  AdamW optimizer(model.parameters);
  std::vector<int64_t> lengths = draw_lengths(stream, steps, seed);
  if (cure.padded) std::fill(lengths.begin(), lengths.end(), stream.longest);
  if (cure.warmed_up)
    std::fill(lengths.begin(), lengths.begin() + std::min<int64_t>(steps, 2), stream.longest);
  if (cure.third > 0 && steps > 2) lengths[2] = cure.third;
  const int64_t first_late = cure.third > 0 ? 3 : 2;
  StreamRun run;
  std::vector<double> seconds;
  int64_t longest_yet = 0;
  try {
    for (int64_t step = 0; step < steps; ++step) {
      const double start = seconds_now(device);
      const int64_t T = lengths[size_t(step)], requests = device.meter().device_requests();
      const DummyBatch batch = dummy_batch(stream.model, stream.batch, T, seed);
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
      const int64_t asked = device.meter().device_requests() - requests;
      if (step >= 2) seconds.push_back(took);
      if (step >= first_late) run.late_requests += asked;
      if (step >= 2 && T <= longest_yet) run.repeat_requests += asked;
      // Not after the first step: its forward pass had the memory that the gradients have ever since.
      if (step >= 1) longest_yet = std::max(longest_yet, T);
    }
  } catch (const OutOfMemory&) {
    if (cure.budget == 0) throw;  // not the lesson's, but the user's
    run.out_of_memory = 1;
  }
  const Meter& meter = device.meter();
  run.peak = meter.at_peak();
  run.reserved = meter.peak_reserved();
  run.requests = meter.device_requests();
  run.given_back = run.requests - held(allocator);
  run.step_seconds = summarize(seconds).median;
  return run;
}

StreamRun run_on_meta(const Stream& stream, const Cure& cure, int64_t steps, uint64_t first_seed,
                      uint64_t streams) {
  StreamRun worst;
  for (uint64_t i = 0; i < streams; ++i) {
    Context context("meta");
    const StreamRun run = run_stream(stream, cure, steps, first_seed + i);
    if (i == 0 || run.ratio() > worst.ratio()) worst.peak = run.peak, worst.reserved = run.reserved;
    for (int64_t StreamRun::*count : {&StreamRun::requests, &StreamRun::late_requests,
                                      &StreamRun::repeat_requests, &StreamRun::given_back})
      worst.*count = std::max(worst.*count, run.*count);
    worst.out_of_memory += run.out_of_memory;
  }
  return worst;
}

}  // namespace gradus
