#include "src/memory/allocator.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <unordered_set>
#include <vector>

#include "src/core/table.h"

namespace gradus {

// Names and values of PyTorch's c10/cuda/CUDACachingAllocator.cpp.
constexpr int64_t kMinBlockSize = 512, kSmallSize = int64_t(1) << 20, kSmallBuffer = int64_t(2) << 20,
                  kLargeBuffer = int64_t(20) << 20, kMinLargeAlloc = int64_t(10) << 20, kRoundLarge = int64_t(2) << 20;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSeparateBlocks = true;  // every block its own malloc, so that AddressSanitizer sees overflows
#elif defined(__has_feature)
constexpr bool kSeparateBlocks = __has_feature(address_sanitizer);
#else
constexpr bool kSeparateBlocks = false;
#endif

struct Segment {
  char* base;
  int64_t size, serial;
  bool small;
  Block* first;
};

char* Block::data() const { return separate ? separate : segment->base + offset; }

static int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
static int64_t block_size(int64_t bytes) { return std::max(round_up(bytes, kMinBlockSize), kMinBlockSize); }
static int64_t segment_size(int64_t block) {
  if (block <= kSmallSize) return kSmallBuffer;
  return block < kMinLargeAlloc ? kLargeBuffer : round_up(block, kRoundLarge);
}

// Best fit: the smallest block that is large enough; ties by age and place, never by address.
struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return std::tuple(a->size, a->segment->serial, a->offset) < std::tuple(b->size, b->segment->serial, b->offset);
  }
};

struct Allocator::Impl {
  std::unique_ptr<Source> source;
  Meter& meter;
  int64_t budget = 0, next_serial = 0;
  std::set<Block*, BySize> free_small, free_large;
  std::unordered_set<Block*> used;

  std::set<Block*, BySize>& pool(const Segment& s) { return s.small ? free_small : free_large; }

  Block* find(int64_t size) {
    auto& free_blocks = size <= kSmallSize ? free_small : free_large;
    Segment probe_segment{nullptr, 0, -1, false, nullptr};
    Block probe{.segment = &probe_segment, .offset = 0, .size = size};
    const auto found = free_blocks.lower_bound(&probe);
    if (found == free_blocks.end()) return nullptr;
    Block* block = *found;
    free_blocks.erase(found);
    return block;
  }

  Block* new_segment(int64_t size) {
    const int64_t bytes = segment_size(size);
    if (budget > 0 && meter.reserved() + bytes > budget) return nullptr;
    char* base = static_cast<char*>(kSeparateBlocks ? nullptr : source->acquire(bytes));
    if (!base && !kSeparateBlocks) return nullptr;
    auto* segment = new Segment{base, bytes, next_serial++, size <= kSmallSize, nullptr};
    meter.add_segment(bytes);
    return segment->first = new Block{.segment = segment, .offset = 0, .size = bytes};
  }

  // Cuts what is not needed off the end of a block, if the rules allow it.
  void split(Block* block, int64_t size) {
    const int64_t rest = block->size - size;
    if (block->segment->small ? rest < kMinBlockSize : rest <= kSmallSize) return;
    auto* tail = new Block{.segment = block->segment, .offset = block->offset + size, .size = rest};
    tail->prev = block;
    tail->next = block->next;
    if (tail->next) tail->next->prev = tail;
    block->next = tail;
    block->size = size;
    pool(*block->segment).insert(tail);
  }

  // Joins `right` to its left neighbour `left`, which stays.
  static void join(Block* left, Block* right) {
    left->size += right->size;
    left->next = right->next;
    if (right->next) right->next->prev = left;
    delete right;
  }

  void release_segment(Segment* segment) {
    if (segment->base) source->release(segment->base, segment->size);
    meter.remove_segment(segment->size);
    delete segment->first;
    delete segment;
  }
};

Allocator::Allocator(std::unique_ptr<Source> source, Meter& meter)
    : impl_(new Impl{.source = std::move(source), .meter = meter, .free_small = {}, .free_large = {}, .used = {}}) {}

Allocator::~Allocator() {
  while (!impl_->used.empty()) free(*impl_->used.begin());
  empty_cache();
}

void Allocator::empty_cache() noexcept {
  for (auto* free_blocks : {&impl_->free_small, &impl_->free_large})
    for (auto it = free_blocks->begin(); it != free_blocks->end();) {
      Segment* segment = (*it)->segment;
      const bool whole = (*it)->size == segment->size;
      it = whole ? free_blocks->erase(it) : std::next(it);
      if (whole) impl_->release_segment(segment);
    }
}

void Allocator::set_budget(int64_t bytes) { impl_->budget = bytes; }

static std::string out_of_memory_text(int64_t bytes, std::string_view name, const Shape& shape, int64_t budget,
                                      const Meter& meter, const std::unordered_set<Block*>& used) {
  std::ostringstream out;
  out << "out of memory: '" << name << "' " << shape << " needs " << bytes_text(bytes) << "; allocated "
      << bytes_text(meter.now().allocated()) << ", reserved " << bytes_text(meter.reserved());
  if (budget > 0) out << " of a budget of " << bytes_text(budget);
  Table kinds({"kind", "bytes", ""});
  for (int k = 0; k < kKinds; ++k)
    if (const int64_t n = meter.now().by_kind[k]) kinds.row({name_of(Kind(k)), std::to_string(n), bytes_text(n)});
  kinds.row({"rounding", std::to_string(meter.now().rounding), bytes_text(meter.now().rounding)});
  std::vector<const Block*> largest(used.begin(), used.end());
  std::sort(largest.begin(), largest.end(), [](const Block* a, const Block* b) {
    return std::tuple(-a->requested, a->name, a->segment->serial, a->offset) <
           std::tuple(-b->requested, b->name, b->segment->serial, b->offset);
  });
  if (largest.size() > 10) largest.resize(10);
  Table blocks({"largest alive", "kind", ""});
  for (const Block* b : largest) blocks.row({b->name, name_of(b->kind), bytes_text(b->requested)});
  out << "\n" << kinds << blocks
      << "what would help: a smaller batch or shorter sequences (activations), a smaller model (weights, gradients, "
         "optimizer), or a larger --memory";
  return out.str();
}

Block* Allocator::allocate(int64_t bytes, Kind kind, std::string_view name, const Shape& shape) {
  check(bytes >= 0 && bytes <= (int64_t(1) << 60), "allocate: '", name, "' ", shape, " asks for ", bytes, " bytes");
  const int64_t size = block_size(bytes);
  Block* block = impl_->find(size);
  if (!block) block = impl_->new_segment(size);
  if (!block) {
    empty_cache();
    block = impl_->new_segment(size);
  }
  if (!block)
    throw OutOfMemory(out_of_memory_text(bytes, name, shape, impl_->budget, impl_->meter, impl_->used));
  impl_->split(block, size);
  if (kSeparateBlocks) block->separate = static_cast<char*>(impl_->source->acquire(std::max<int64_t>(bytes, 1)));
  block->free = false;
  block->requested = bytes;
  block->kind = kind;
  block->name = name;
  impl_->used.insert(block);
  impl_->meter.add(kind, bytes, block->size);
  return block;
}

void Allocator::free(Block* block) noexcept {
  impl_->used.erase(block);
  impl_->meter.remove(block->kind, block->requested, block->size);
  if (block->separate) impl_->source->release(block->separate, std::max<int64_t>(block->requested, 1));
  block->separate = nullptr;
  block->free = true;
  auto& free_blocks = impl_->pool(*block->segment);
  if (Block* next = block->next; next && next->free) {
    free_blocks.erase(next);
    Impl::join(block, next);
  }
  if (Block* prev = block->prev; prev && prev->free) {
    free_blocks.erase(prev);
    Impl::join(prev, block);
    block = prev;
  }
  free_blocks.insert(block);
}

void Allocator::change_kind(Block* block, Kind kind) {
  impl_->meter.move(block->kind, kind, block->requested);
  block->kind = kind;
}

}  // namespace gradus
