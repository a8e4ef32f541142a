#include "src/io/atomic_file.h"
#include "src/io/memory_files.h"
#include "src/io/plot.h"

namespace gradus {

// One point for each event that changes a size, in MiB.
static void append(StackPlot& plot, size_t event, const Usage& now, int64_t reserved) {
  const auto add = [event](Series& series, int64_t bytes) {
    series.x.push_back(double(event));
    series.y.push_back(double(bytes) / (1 << 20));
  };
  for (int k = 0; k < kKinds; ++k) add(plot.layers[size_t(k)], now.by_kind[size_t(k)]);
  add(plot.layers[kKinds], now.rounding);
  add(plot.line, reserved);
}

void write_memory_plot(const std::string& path, const Allocator& allocator, const std::string& title) {
  StackPlot plot{title, "event (allocation, free, segment)", "MiB", {}, {"reserved", {}, {}}};
  for (int k = 0; k < kKinds; ++k) plot.layers.push_back({name_of(Kind(k)), {}, {}});
  plot.layers.push_back({"rounding", {}, {}});
  MemoryReplay replay;
  const std::vector<MemoryEvent>& history = allocator.history();
  for (size_t i = 0; i < history.size(); ++i) {
    replay.apply(history[i]);
    append(plot, i, replay.meter.now(), replay.meter.reserved());
  }
  write_file(path, draw(plot));
}

}  // namespace gradus
