// Expandable segments, as in PyTorch's CUDA allocator (expandable_segments:True). If sizes grow from step to
// step, the segments of earlier steps are a little too small, so their memory is reserved and cannot be used.
// So here a pool has one segment with more addresses than any device has memory. If a request is larger than
// every free block, the allocator maps memory at the next addresses, page by page (2 MiB in the small pool,
// 20 MiB in the large one). Blocks never move, and a freed block merges with its neighbours, even if they
// were mapped for different requests.
//
// Addresses without memory, mostly the end of the segment, are blocks too: free, not mapped and in no pool.
// They are called holes. Emptying the cache turns all wholly free pages into holes.
#include <algorithm>

#include "src/memory/allocator.h"

namespace gradus {

// Addresses of one segment; a larger request gets more. When they are used up, the pool gets another segment.
constexpr int64_t kAddresses = int64_t(1) << 40;
constexpr int64_t kSmallPage = int64_t(2) << 20, kLargePage = int64_t(20) << 20;

static int64_t free_before(const Block* hole) {
  return hole->prev && hole->prev->free ? hole->prev->size : 0;
}

// Called when no free block is large enough. Returns a free block of at least `size` bytes, in no pool, with
// memory on newly mapped pages; nullptr: no memory.
Block* Allocator::expand(int64_t size, bool small) {
  Block* hole = find_hole(size, small);
  if (!hole) return nullptr;
  if (map(hole, round_up(size - free_before(hole), hole->segment->page))) return merge_with_neighbours(hole);
  if (!hole->prev && !hole->next) remove_segment(*hole->segment);  // it was made for this request
  return nullptr;
}

// The first hole that has room for `size` bytes together with the free block before it. (PyTorch would also
// join several holes with the free blocks between them.)
Block* Allocator::find_hole(int64_t size, bool small) {
  // BEGIN SOLUTION 05.3
  for (auto& [serial, segment] : segments_) {
    if (segment.small != small) continue;
    for (Block* b = segment.first; b; b = b->next)
      if (!b->mapped && free_before(b) + b->size >= size) return b;
  }
  // STUB: todo("05.3", "return the first hole of the pool's segments with room", size, small, free_before);
  // END SOLUTION 05.3
  const int64_t page = small ? kSmallPage : kLargePage;
  const int64_t addresses = round_up(std::max(size, kAddresses), page);
  void* base = source_->reserve(addresses);
  if (!base) return nullptr;
  return add_segment({next_serial_++, 0, small, static_cast<char*>(base), new_block(), addresses, page, 0});
}

// Maps memory at the first `bytes` of a hole, which becomes a free block of that size. false: no memory.
bool Allocator::map(Block* hole, int64_t bytes) {
  Segment& segment = *hole->segment;
  if (!within_budget(bytes)) return false;
  char* const begin = segment.base + hole->offset;
  for (int64_t at = 0; at < bytes; at += segment.page) {
    if (source_->map(begin + at, segment.page)) continue;
    while (at > 0) source_->unmap(begin + (at -= segment.page), segment.page);
    return false;
  }
  if (bytes < hole->size) cut(hole, bytes);
  hole->mapped = true;
  segment.bytes += bytes;
  for (int64_t at = 0; at < bytes; at += segment.page) meter_.add_segment(segment.page);
  note(Action::SegmentMap, begin, bytes);
  return true;
}

void Allocator::unmap_free_pages(Segment& segment) noexcept {
  const int64_t page = segment.page;
  for (Block* b = segment.first; b; b = b->next) {
    if (!b->free || !b->mapped) continue;
    const int64_t begin = round_up(b->offset, page), end = (b->offset + b->size) / page * page;
    if (begin >= end) continue;
    FreeBlocks& free_blocks = pool(segment);
    free_blocks.erase(b);
    if (end < b->offset + b->size) free_blocks.insert(cut(b, end - b->offset));
    if (begin > b->offset) {
      Block* whole_pages = cut(b, begin - b->offset);
      free_blocks.insert(b);
      b = whole_pages;
    }
    for (int64_t at = begin; at < end; at += page) {
      source_->unmap(segment.base + at, page);
      segment.bytes -= page;
      meter_.remove_segment(page);
    }
    note(Action::SegmentUnmap, segment.base + begin, end - begin);
    b->mapped = false;
    b = merge_with_neighbours(b);
  }
}

}  // namespace gradus
