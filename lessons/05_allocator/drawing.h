// Draws the segments and blocks of an allocator as text; and an example that is small enough for that.
#pragma once
#include <ostream>

#include "src/memory/allocator.h"

namespace gradus {

// One line per segment. One character is 64 KiB in the small pool and 1 MiB in the large pool; each block has
// at least one. The character is the first letter of the block's name, '-' for rounding, or '.' for free
// memory. Of an expandable segment only the mapped blocks are drawn.
void draw_segments(std::ostream&, const Allocator&);

// Shows rounding, pools, splitting, best fit, merging and caching; then how expandable segments differ.
void draw_example(std::ostream&);

}  // namespace gradus
