// The message of OutOfMemory. Its reader's run has just failed, so it says everything: the request, the
// memory that exists, the kinds and blocks that hold it, and what to try.
#include <algorithm>
#include <sstream>

#include "src/core/table.h"
#include "src/memory/allocator.h"

namespace gradus {

constexpr size_t kLargestShown = 10;

static std::vector<const Block*> blocks_in_use(const Allocator& allocator) {
  std::vector<const Block*> blocks;
  for (const auto& [serial, segment] : allocator.segments())
    for (const Block* b = segment.first; b; b = b->next)
      if (!b->free) blocks.push_back(b);
  return blocks;
}

static int64_t largest_free_piece(const Allocator& allocator) {
  int64_t largest = 0;
  for (const auto& [serial, segment] : allocator.segments())
    for (const Block* b = segment.first; b && segment.pool == allocator.pool(); b = b->next)
      if (b->free && b->mapped) largest = std::max(largest, b->size);
  return largest;
}

static int64_t in_other_pools(const Allocator& allocator) {
  int64_t bytes = 0;
  for (const auto& [serial, segment] : allocator.segments())
    if (segment.pool != 0 && segment.pool != allocator.pool()) bytes += segment.bytes;
  return bytes;
}

static const char* hint_for(Kind largest) {
  switch (largest) {
    case Kind::Activation:
    case Kind::Temporary:
    case Kind::Data: return "a smaller batch or a shorter context (activations grow with both)";
    case Kind::Weight:
    case Kind::Master:
    case Kind::Gradient: return "a smaller model, or fewer bytes per parameter";
    case Kind::Optimizer: return "an optimizer with smaller states, or a smaller model";
    default: return "a smaller batch or a smaller model";
  }
}

std::string out_of_memory_text(const Allocator& allocator, int64_t bytes, Kind kind, std::string_view name,
                               const Shape& shape) {
  const Meter& meter = allocator.meter();
  const Usage& now = meter.now();
  std::ostringstream out;
  out << "out of memory: " << name << " " << shape << " (" << name_of(kind) << ") needs " << bytes
      << " bytes (" << bytes_text(bytes) << ")";
  if (const std::string range = allocator.range(); !range.empty()) out << ", in " << range;
  out << ".\n";
  if (allocator.budget() > 0) out << "budget " << bytes_text(allocator.budget()) << ", ";
  out << "reserved " << bytes_text(meter.reserved()) << ", allocated " << bytes_text(now.allocated())
      << "; the largest free piece is " << bytes_text(largest_free_piece(allocator));
  if (const int64_t elsewhere = in_other_pools(allocator); elsewhere > 0)
    out << ", and " << bytes_text(elsewhere) << " are in private pools (captured steps)";
  out << ".\n\n";

  out << now.table("kind");

  Table largest({"largest blocks", "shape", "kind", "bytes", ""});
  std::vector<const Block*> live = blocks_in_use(allocator);
  std::stable_sort(live.begin(), live.end(), [](auto* a, auto* b) { return a->requested > b->requested; });
  if (live.size() > kLargestShown) live.resize(kLargestShown);
  for (const Block* b : live)
    largest.row(
        {b->name, b->shape.text(), name_of(b->kind), count_text(b->requested), bytes_text(b->requested)});
  if (!live.empty()) out << "\n" << largest;

  const auto most = std::max_element(now.by_kind.begin(), now.by_kind.end()) - now.by_kind.begin();
  out << "\nWhat would help: " << hint_for(now.allocated() > bytes ? Kind(most) : kind);
  if (allocator.budget() > 0) out << "; or a larger --memory";
  out << ".";
  return out.str();
}

}  // namespace gradus
