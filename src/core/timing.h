// Timing as DESIGN section 6 asks: warm-up, repeats, median and minimum. Shared machines are noisy: compare
// ratios measured in one run, never single times.
#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

namespace gradus {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Timing {
  double median = 0, min = 0;  // seconds per call
  int repeats = 0;
};

inline Timing summarize(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), int(seconds.size())};
}

// Calls f once to warm up, then until both `repeats` calls and `min_seconds` are reached.
template <class F>
Timing measure(F&& f, int repeats = 5, double min_seconds = 0.05) {
  f();
  std::vector<double> times;
  for (double total = 0; int(times.size()) < repeats || total < min_seconds; total += times.back()) {
    const double start = seconds_now();
    f();
    times.push_back(seconds_now() - start);
  }
  return summarize(times);
}

}  // namespace gradus
