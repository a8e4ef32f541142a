// The caching allocator, one for all devices, with the published rules of PyTorch's CUDA allocator
// (c10/cuda/CUDACachingAllocator.cpp). A device allocation is slow (cudaMalloc waits for the device, fresh
// host pages must be zeroed), so the allocator gets memory in segments, cuts blocks from them, and keeps
// freed blocks:
//
// - a request is rounded up to a multiple of 512 bytes;
// - the small pool serves requests up to 1 MiB, in segments of 2 MiB; the large pool serves larger ones:
//   below 10 MiB in segments of 20 MiB, else in a segment of their own, rounded up to 2 MiB;
// - the allocator takes the best fit in the pool: the smallest free block that is large enough, on a tie the
//   first by (segment serial, offset), never by address, so every device and every run makes the same
//   decisions;
// - the remainder of the block becomes a free block if it is at least 512 bytes (small pool, expandable
//   segments) or more than 1 MiB (large pool); else it stays in the block and counts as rounding;
// - a freed block merges with the free blocks next to it.
//
// With set_expandable(true) a pool's new memory comes as pages of one growing segment:
// expandable_segments.cpp.
//
// In AddressSanitizer builds the decisions and the accounting are the same, but each block's bytes are a
// separate malloc of exactly the requested size, so that overflows and uses after free are detected. (Not in
// private pools, whose addresses must repeat.)
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/shape.h"
#include "src/memory/history.h"
#include "src/memory/meter.h"
#include "src/memory/ranges.h"
#include "src/memory/source.h"

namespace gradus {

struct OutOfMemory : Error {
  using Error::Error;
};

inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

struct Block;
struct Segment {          // one piece of device memory; its blocks tile it
  int64_t serial, bytes;  // serials count up from 0 in the order of creation
  bool small;             // of the small pool; false: of the large pool
  char* base;
  Block* first;
  int64_t addresses;  // size of the address range; larger than bytes only if expandable
  int64_t page;       // page size of an expandable segment; 0: not expandable
  int64_t pool;       // its private pool; 0: none
};

struct Block {  // a piece of a segment; owned by the allocator
  Segment* segment = nullptr;
  int64_t offset = 0, size = 0;  // within the segment, in bytes
  int64_t requested = 0;
  int64_t number = 0;  // counts allocations; valid while in use
  Kind kind = Kind::Other;
  std::string name;
  Shape shape;
  bool free = true;
  bool mapped = true;  // false: free addresses without memory, in no pool (expandable segments only)
  Block *prev = nullptr, *next = nullptr;  // neighbours within the segment
  char* bytes = nullptr;                   // address of its memory while in use
  char* data() const { return bytes; }
};

class Allocator {
 public:
  Allocator(std::unique_ptr<Source>, Meter&);
  // Releases every segment. A block still in use is a bug (a tensor that outlives its device). The destructor
  // names the block on stderr and aborts, because the next access would be to released memory.
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Returns a block of at least `bytes` (0 is allowed and takes the smallest block). `shape` and `name` go
  // into the history and the message of OutOfMemory: the request, the table by kind, the largest live blocks,
  // and what would help. After an OutOfMemory all blocks are as before, but the cache is empty. Rejects
  // negative sizes.
  Block* allocate(int64_t bytes, Kind, std::string_view name, const Shape& shape = {});
  // Freeing a block twice is a bug and aborts with a sentence (a destructor calls this, so it cannot throw).
  // It goes unnoticed if the block was allocated again in between.
  void free(Block*) noexcept;
  void change_kind(Block*, Kind);  // rejects a freed block
  // Returns all wholly free segments (except those of private pools) and all wholly free pages of expandable
  // segments to the device.
  void empty_cache() noexcept;
  void set_budget(int64_t bytes);  // limits `reserved`; 0: no limit. Existing segments stay.
  // Functions to call, in this order, when there is no memory for a request. When one returns true, it has
  // freed memory and the allocator tries again. When all return false, the request fails.
  std::list<std::function<bool()>> make_room;
  // From now on, new device memory comes as pages of expandable segments. Off by default, as in PyTorch.
  void set_expandable(bool on) { expandable_ = on; }

  // A private pool has its own segments (not expandable), which serve only the requests made while the pool
  // is in use, by first fit. If all its blocks are freed and the same requests are repeated, they get the
  // same addresses. When the pool ends, its segments and its blocks in use join the common pool.
  int64_t begin_pool();
  void end_pool(int64_t pool) noexcept;
  int64_t allocations() const { return allocations_; }  // number of allocations so far
  int64_t pool() const { return pool_; }                // the pool in use
  int64_t use_pool(int64_t pool);  // returns the previous one; 0: the common pool. Rejects an ended pool

  // Records all events from now on (about 250 bytes of host memory per event). Segments and blocks that exist
  // already are recorded as if allocated now, with the op "before the history".
  void keep_history();
  const std::vector<MemoryEvent>& history() const;  // an Error without keep_history()
  // Events and errors name the open ranges; without this call they name none.
  void take_names_from(const Ranges& ranges) { ranges_ = &ranges; }
  std::string range() const { return ranges_ ? ranges_->path() : ""; }

  int64_t budget() const { return budget_; }
  Source& source() const { return *source_; }
  const Meter& meter() const { return meter_; }
  const std::map<int64_t, Segment>& segments() const { return segments_; }  // by serial

 private:
  struct Order {  // orders free blocks by (size, segment serial, offset)
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const;
    bool operator()(const Block* a, int64_t size) const { return a->size < size; }
  };
  using FreeBlocks = std::set<Block*, Order>;

  FreeBlocks& pool(const Segment& s) { return free_.at({s.pool, s.small}); }
  bool within_budget(int64_t more) const { return budget_ == 0 || more <= budget_ - meter_.reserved(); }
  Block* find(int64_t size, bool small);  // a block of at least `size`, in no pool; nullptr: no memory
  Block* take_free_block(int64_t size, bool small);
  Block* new_segment(int64_t size, bool small);  // its one free block, in no pool; nullptr: no memory
  Block* add_segment(Segment);                   // returns its only block
  void remove_segment(const Segment&) noexcept;  // a segment of one free block, in no pool
  Block* cut(Block*, int64_t size);              // returns the rest
  Block* merge(Block* left, Block* right);
  Block* merge_with_neighbours(Block*);
  Block* new_block();

  // history.cpp
  void note(Action, const Block&);
  void note(Action, const char* address, int64_t bytes);
  void note_out_of_memory(int64_t bytes, Kind, std::string_view name, const Shape&);

  // expandable_segments.cpp
  Block* expand(int64_t size, bool small);  // as new_segment
  Block* find_hole(int64_t size, bool small);
  bool map(Block*, int64_t bytes);
  void unmap_free_pages(Segment&) noexcept;

  std::unique_ptr<Source> source_;
  Meter& meter_;
  const Ranges* ranges_ = nullptr;
  int64_t budget_ = 0, next_serial_ = 0;
  bool expandable_ = false, keeps_history_ = false;
  double history_begin_ = 0;
  std::vector<MemoryEvent> history_;
  std::map<int64_t, Segment> segments_;
  int64_t pool_ = 0, last_pool_ = 0, allocations_ = 0;
  std::map<std::pair<int64_t, bool>, FreeBlocks> free_;  // by (private pool or 0, small)
  // Block objects are recycled, never destroyed: a second free() still finds a valid, free object.
  std::deque<Block> blocks_;
  std::vector<Block*> unused_;
};

// The message of OutOfMemory.
std::string out_of_memory_text(const Allocator&, int64_t bytes, Kind, std::string_view name, const Shape&);

}  // namespace gradus
