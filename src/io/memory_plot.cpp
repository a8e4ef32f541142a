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

// The events of a panel, from x = `begin` on.
static void append(StackPlot& plot, size_t begin, const MemoryPanel& panel) {
  MemoryReplay replay;
  for (size_t e = 0; e < panel.first; ++e) replay.apply(panel.history[e]);
  for (size_t i = begin, e = panel.first; e < panel.history.size(); ++i, ++e) {
    replay.apply(panel.history[e]);
    append(plot, i, replay.meter.now(), replay.meter.reserved());
  }
}

void write_memory_plot(const std::string& path, const std::vector<MemoryPanel>& panels,
                       const std::string& title) {
  StackPlot plot{title, "event (allocation, free, segment)", "MiB", {}, {"reserved", {}, {}}};
  for (int k = 0; k < kKinds; ++k) plot.layers.push_back({name_of(Kind(k)), {}, {}});
  plot.layers.push_back({"rounding", {}, {}});
  size_t events = 0, begin = 0;
  for (const MemoryPanel& panel : panels) events += panel.history.size() - panel.first;
  for (const MemoryPanel& panel : panels) {
    append(plot, begin, panel);
    const size_t end = begin + panel.history.size() - panel.first, gap = 1 + events / 40;
    if (!panel.name.empty()) plot.panels.push_back({panel.name, double(begin + end) / 2});
    if (&panel != &panels.back()) append(plot, end, Usage(), 0);  // the gap is empty
    begin = end + gap;
  }
  write_file(path, draw(plot));
}

void write_memory_plot(const std::string& path, const Allocator& allocator, const std::string& title) {
  write_memory_plot(path, {{"", allocator.history()}}, title);
}

}  // namespace gradus
