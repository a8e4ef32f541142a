#include "src/memory/allocator.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace gradus {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kOwnMallocs = true;
#else
constexpr bool kOwnMallocs = false;
#endif

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr int64_t kMinBlock = 512;                  // every block is a multiple of this
constexpr int64_t kSmallLimit = 1 * kMiB;           // the largest block of the small pool
constexpr int64_t kSmallSegment = 2 * kMiB;         // a segment of the small pool
constexpr int64_t kLargeSegment = 20 * kMiB;        // a segment of the large pool, for blocks below
constexpr int64_t kOwnSegmentFrom = 10 * kMiB;      // this size; from it on, a block has its own segment,
constexpr int64_t kOwnSegmentUnit = 2 * kMiB;       // rounded up to a multiple of this
constexpr int64_t kLargeRemainder = 1 * kMiB;       // the large pool splits off a remainder above this
constexpr int64_t kLargestRequest = INT64_MAX / 2;  // more than any device has; rounding cannot overflow

static int64_t block_size(int64_t requested) {
  return requested == 0 ? kMinBlock : round_up(requested, kMinBlock);
}

static int64_t segment_size(int64_t size) {
  if (size <= kSmallLimit) return kSmallSegment;
  if (size < kOwnSegmentFrom) return kLargeSegment;
  return round_up(size, kOwnSegmentUnit);
}

static bool worth_splitting(int64_t remainder, const Segment& segment) {
  return segment.small || segment.page > 0 ? remainder >= kMinBlock : remainder > kLargeRemainder;
}

[[noreturn]] static void abort_because(const char* problem, const Block& block) {
  std::fprintf(stderr, "allocator: %s: block \"%s\" (%s, %lld bytes)\n", problem, block.name.c_str(),
               name_of(block.kind), static_cast<long long>(block.requested));
  std::abort();
}

bool Allocator::Order::operator()(const Block* a, const Block* b) const {
  if (a->size != b->size) return a->size < b->size;
  if (a->segment != b->segment) return a->segment->serial < b->segment->serial;
  return a->offset < b->offset;
}

Allocator::Allocator(std::unique_ptr<Source> source, Meter& meter)
    : source_(std::move(source)), meter_(meter), free_{{{0, false}, {}}, {{0, true}, {}}} {}

Allocator::~Allocator() {
  while (free_.size() > 2) end_pool(free_.rbegin()->first.first);
  empty_cache();
  for (const auto& [serial, segment] : segments_)
    for (const Block* b = segment.first; b; b = b->next)
      if (!b->free) abort_because("destroyed while a block is in use (a tensor outlives its device)", *b);
}

Block* Allocator::allocate(int64_t bytes, Kind kind, std::string_view name, const Shape& shape) {
  check(bytes >= 0, "allocate: ", name, " asks for ", bytes, " bytes; sizes cannot be negative");
  Block* block = nullptr;
  if (bytes <= kLargestRequest) {
    const int64_t size = block_size(bytes);
    const bool small = size <= kSmallLimit;
    block = find(size, small);
    while (!block && std::any_of(make_room.begin(), make_room.end(), [](const auto& ask) { return ask(); }))
      block = find(size, small);
    if (block && worth_splitting(block->size - size, *block->segment))
      pool(*block->segment).insert(cut(block, size));
  }
  if (!block) {
    note_out_of_memory(bytes, kind, name, shape);
    throw OutOfMemory(out_of_memory_text(*this, bytes, kind, name, shape));
  }

  block->free = false;
  block->requested = bytes;
  block->number = ++allocations_;
  block->kind = kind;
  block->name = name;
  block->shape = shape;
  block->bytes = block->segment->base + block->offset;
  if (kOwnMallocs && source_->on_host() && block->segment->pool == 0) {
    void* own = nullptr;
    check(posix_memalign(&own, 64, size_t(bytes)) == 0, "allocate: no memory for ", name);
    block->bytes = static_cast<char*>(own);
  }
  meter_.add(kind, bytes, block->size);
  note(Action::Alloc, *block);
  return block;
}

void Allocator::free(Block* block) noexcept {
  if (block->free) abort_because("freed twice", *block);
  meter_.remove(block->kind, block->requested, block->size);
  note(Action::Free, *block);
  if (block->bytes != block->segment->base + block->offset) std::free(block->bytes);
  block->bytes = nullptr;
  block->free = true;
  pool(*block->segment).insert(merge_with_neighbours(block));
}

void Allocator::change_kind(Block* block, Kind kind) {
  check(!block->free, "change_kind: block \"", block->name, "\" was freed; it has no kind to change");
  meter_.move(block->kind, kind, block->requested);
  block->kind = kind;
  note(Action::ChangeKind, *block);
}

void Allocator::empty_cache() noexcept {
  for (auto at = segments_.begin(); at != segments_.end();) {
    Segment& segment = (at++)->second;
    if (segment.pool != 0) continue;
    if (segment.page > 0) unmap_free_pages(segment);
    if (!segment.first->free || segment.first->next) continue;
    pool(segment).erase(segment.first);
    remove_segment(segment);
  }
}

int64_t Allocator::begin_pool() {
  for (const bool small : {false, true}) free_[{last_pool_ + 1, small}];
  return ++last_pool_;
}

int64_t Allocator::use_pool(int64_t pool) {
  check(free_.contains({pool, false}), "allocator: there is no private pool ", pool, ", or it has ended");
  return std::exchange(pool_, pool);
}

void Allocator::end_pool(int64_t pool) noexcept {
  if (pool_ == pool) pool_ = 0;
  for (auto& [serial, segment] : segments_)
    if (segment.pool == pool) segment.pool = 0;
  for (const bool small : {false, true}) {
    free_.at({0, small}).merge(free_.at({pool, small}));
    free_.erase({pool, small});
  }
}

void Allocator::set_budget(int64_t bytes) {
  check(bytes >= 0, "allocator: a budget of ", bytes, " bytes; give a positive number, or 0 for no limit");
  budget_ = bytes;
}

Block* Allocator::find(int64_t size, bool small) {
  if (Block* const block = take_free_block(size, small)) return block;
  if (Block* const block = new_segment(size, small)) return block;
  empty_cache();
  return new_segment(size, small);
}

Block* Allocator::take_free_block(int64_t size, bool small) {
  FreeBlocks& free_blocks = free_.at({pool_, small});
  auto best = free_blocks.lower_bound(size);
  if (pool_ != 0)  // first fit: segments that the run before did not have yet come last and change nothing
    best = std::min_element(best, free_blocks.end(), [](const Block* a, const Block* b) {
      return std::pair(a->segment->serial, a->offset) < std::pair(b->segment->serial, b->offset);
    });
  if (best == free_blocks.end()) return nullptr;
  Block* block = *best;
  free_blocks.erase(best);
  return block;
}

Block* Allocator::new_segment(int64_t size, bool small) {
  if (expandable_ && pool_ == 0) return expand(size, small);
  const int64_t bytes = segment_size(size);
  if (!within_budget(bytes)) return nullptr;
  void* base = source_->acquire(bytes);
  if (!base) return nullptr;
  meter_.add_segment(bytes);
  note(Action::SegmentAlloc, static_cast<char*>(base), bytes);
  return add_segment({next_serial_++, bytes, small, static_cast<char*>(base), new_block(), bytes, 0, pool_});
}

Block* Allocator::add_segment(Segment made) {
  Segment& segment = segments_[made.serial] = made;
  Block* block = segment.first;
  block->segment = &segment;
  block->offset = 0;
  block->size = segment.addresses;
  block->mapped = segment.page == 0;
  block->prev = block->next = nullptr;
  return block;
}

void Allocator::remove_segment(const Segment& segment) noexcept {
  unused_.push_back(segment.first);
  if (segment.page > 0) {
    source_->unreserve(segment.base, segment.addresses);
  } else {
    source_->release(segment.base, segment.bytes);
    meter_.remove_segment(segment.bytes);
    note(Action::SegmentFree, segment.base, segment.bytes);
  }
  segments_.erase(segment.serial);
}

// Cuts `block` down to `size` and returns the rest, a free block. Neither is in a pool.
Block* Allocator::cut(Block* block, int64_t size) {
  Block* rest = new_block();
  rest->segment = block->segment;
  rest->offset = block->offset + size;
  rest->size = block->size - size;
  rest->mapped = block->mapped;
  rest->prev = block;
  rest->next = block->next;
  if (rest->next) rest->next->prev = rest;
  block->next = rest;
  block->size = size;
  return rest;
}

// Merges two free neighbours; neither is in a pool.
Block* Allocator::merge(Block* left, Block* right) {
  left->size += right->size;
  left->next = right->next;
  if (left->next) left->next->prev = left;
  unused_.push_back(right);
  return left;
}

// Merges `block`, which is free and in no pool, with its free neighbours. A block that has memory does not
// merge with one that has only addresses. (Erasing from the pool does nothing if the neighbour has only
// addresses.)
Block* Allocator::merge_with_neighbours(Block* block) {
  const auto joins = [block](const Block* b) { return b && b->free && b->mapped == block->mapped; };
  FreeBlocks& free_blocks = pool(*block->segment);
  if (joins(block->next)) {
    free_blocks.erase(block->next);
    merge(block, block->next);
  }
  if (!joins(block->prev)) return block;
  free_blocks.erase(block->prev);
  return merge(block->prev, block);
}

Block* Allocator::new_block() {
  if (unused_.empty()) return &blocks_.emplace_back();
  Block* block = unused_.back();
  unused_.pop_back();
  return block;
}

}  // namespace gradus
