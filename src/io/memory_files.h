// The memory history (src/memory/history.h) as files to look at. All take it from an allocator that was told
// to keep_history(), and write their file as a whole or not at all.
#pragma once
#include <string>
#include <vector>

#include "src/core/json.h"
#include "src/memory/allocator.h"

namespace gradus {

// An SVG: allocated bytes event by event, stacked by kind, and the reserved bytes as a line above.
void write_memory_plot(const std::string& path, const Allocator&, const std::string& title);
// The same of several histories: a panel for each, from left to right, on the same axes.
struct MemoryPanel {
  std::string name;                       // is written at the top of the panel
  std::vector<MemoryEvent> history = {};  // from its beginning
  size_t first = 0;                       // the first event that is shown
};
void write_memory_plot(const std::string& path, const std::vector<MemoryPanel>& panels,
                       const std::string& title);

// One page for any browser, with nothing to be loaded from elsewhere: every block as a band over its life,
// to be zoomed, hovered and clicked.
void write_memory_page(const std::string& path, const Allocator&, const std::string& title);

// The dictionary of torch.cuda.memory._snapshot(): segments and blocks as they are now, and the history.
// Frames, which in PyTorch are the Python stack, are here the block and the ranges around it. Written by
// write_memory_snapshot() as a pickle, it can be dropped on https://pytorch.org/memory_viz.
Json memory_snapshot(const Allocator&);
void write_memory_snapshot(const std::string& path, const Allocator&);

}  // namespace gradus
