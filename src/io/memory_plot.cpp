#include <unordered_map>
#include <utility>

#include "src/io/memory_files.h"

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

Canvas draw_memory(const Allocator& allocator, const std::string& title) {
  StackPlot plot{title, "event (allocation, free, segment)", "MiB", {}, {"reserved", {}, {}}};
  for (int k = 0; k < kKinds; ++k) plot.layers.push_back({name_of(Kind(k)), {}, {}});
  plot.layers.push_back({"rounding", {}, {}});
  Meter meter;  // goes through the history again
  std::unordered_map<int64_t, Kind> kinds;
  const std::vector<MemoryEvent>& history = allocator.history();
  for (size_t i = 0; i < history.size(); ++i) {
    const MemoryEvent& e = history[i];
    switch (e.action) {
      case Action::Alloc: meter.add(kinds[e.address] = e.kind, e.requested, e.bytes); break;
      case Action::Free: meter.remove(e.kind, e.requested, e.bytes); break;
      case Action::ChangeKind:
        meter.move(std::exchange(kinds[e.address], e.kind), e.kind, e.requested);
        break;
      case Action::SegmentAlloc:
      case Action::SegmentMap: meter.add_segment(e.bytes); break;
      case Action::SegmentFree:
      case Action::SegmentUnmap: meter.remove_segment(e.bytes); break;
      case Action::OutOfMemory: break;
    }
    append(plot, i, meter.now(), meter.reserved());
  }
  return draw(plot);
}

}  // namespace gradus
