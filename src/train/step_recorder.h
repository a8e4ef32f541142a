// The steps of a training loop, for the report.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "src/memory/device_timing.h"
#include "src/tensor/context.h"
#include "src/train/report.h"

namespace gradus {

// begin() and end() enclose each step; the clock waits for the device.
class StepRecorder {
 public:
  std::vector<double> seconds, losses;  // of each step
  std::vector<int64_t> requests;        // device allocations until the end of each step
  Usage peak;                           // at the peak, until the last step's end
  int64_t reserved = 0;                 // peak

  void begin() { start_ = seconds_now(device_); }
  void end(double loss = NAN) {
    seconds.push_back(seconds_now(device_) - start_);
    losses.push_back(loss);
    requests.push_back(device_.meter().device_requests());
    peak = device_.meter().at_peak();
    reserved = device_.meter().peak_reserved();
  }
  double total_seconds() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }
  double recent_loss() const {  // the mean of the last 50
    const auto count = std::min<ptrdiff_t>(ptrdiff_t(losses.size()), 50);
    return std::accumulate(losses.end() - count, losses.end(), 0.0) / double(count);
  }
  // Fills in the times of the median step, of `tokens` tokens, the bytes and the losses.
  void fill(ReportRow& row, int64_t tokens) const {
    const double median = summarize(seconds).median;
    row.ms_per_step = median * 1e3;
    row.tokens_per_s = double(tokens) / median;
    row.peak = peak;
    row.reserved_bytes = reserved;
    if (std::isnan(losses.front())) return;  // no losses were recorded
    row.loss_first = losses.front();
    row.loss_last = recent_loss();
  }

 private:
  Device& device_ = current().device;
  double start_ = 0;
};

}  // namespace gradus
