// Time on a device. A GPU works behind the host's back: before the clock is read, its work must be done.
#pragma once
#include "src/core/timing.h"
#include "src/memory/device.h"

namespace gradus {

inline double seconds_now(Device& device) {
  device.synchronize();
  return seconds_now();
}

// measure() of what f asks of a device. To ask a GPU for one kernel and wait for it takes some 10 us by
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
