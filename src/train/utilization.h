// Lines to print around an experiment: occupied memory, time and samples per second.
#pragma once
#include <ostream>

#include "src/core/table.h"
#include "src/memory/device.h"

namespace gradus {

// Bytes: on a GPU those that nvidia-smi shows (including the context and other programs), on the CPU those of
// this process; elsewhere those that the allocator holds.
inline int64_t memory_occupied(Device& device) {
  const int64_t bytes = device.allocator().source().occupied();
  return bytes >= 0 ? bytes : device.meter().reserved();
}

// "memory occupied: 2631 MiB", rounded down.
inline void print_utilization(std::ostream& out, Device& device) {
  out << "memory occupied: " << memory_occupied(device) / (1 << 20) << " MiB\n";
}

// "time: 57.8 s, 8.86 samples/s, memory occupied: 14949 MiB"
inline void print_summary(std::ostream& out, Device& device, double seconds, int64_t samples) {
  out << "time: " << seconds_text(seconds) << ", " << number_text(double(samples) / seconds)
      << " samples/s, ";
  print_utilization(out, device);
}

}  // namespace gradus
