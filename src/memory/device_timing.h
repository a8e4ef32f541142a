// Time on a device. A GPU runs asynchronously, so the host waits for its work before it reads the clock.
#pragma once
#include "src/core/timing.h"
#include "src/memory/device.h"

namespace gradus {

inline double seconds_now(Device& device) {
  device.synchronize();
  return seconds_now();
}

// measure() for work that f queues on a device. Launching one kernel and waiting for it takes about 10 us by
// itself, so a sample is as many calls as take a millisecond, and one wait.
template <class F>
Timing measure(Device& device, F&& f, int repeats = 5, double min_seconds = 0.05) {
  f();
  const double start = seconds_now(device);
  f();
  const double once = seconds_now(device) - start;
  const int calls = once < 1e-6 ? 1000 : std::max(1, int(1e-3 / once));
  const auto sample = [&] {
    for (int i = 0; i < calls; ++i) f();
    device.synchronize();
  };
  const Timing t = measure(sample, repeats, min_seconds);
  return {t.median / calls, t.min / calls, t.repeats};
}

}  // namespace gradus
