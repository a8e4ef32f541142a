// What an allocator holds, drawn as text, and an example that is small enough to be drawn.
#pragma once
#include <ostream>

#include "src/memory/allocator.h"

namespace gradus {

// A line for each segment, a character for each 64 KiB of the small pool and each MiB of the large one (at
// least one for a block): the first letter of a block's name, '-' for what the block has more than was asked
// for, '.' for free memory. Of expandable segments only what has memory.
void draw_segments(std::ostream&, const Allocator&);

// Rounding, pools, splitting, best fit, merging, caching; then the same with expandable segments, where they
// differ.
void draw_example(std::ostream&);

}  // namespace gradus
