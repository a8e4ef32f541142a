// The caching allocator, one for all devices, with the published rules of PyTorch's CUDA allocator
// (c10/cuda/CUDACachingAllocator.cpp). Asking a device for memory is slow (cudaMalloc waits for the device,
// fresh host pages must be zeroed), so memory is asked for in segments, cut into blocks, and kept when freed:
//
// - a request is rounded up to a multiple of 512 bytes;
// - up to 1 MiB it is served by the small pool, in segments of 2 MiB; above, by the large pool: in segments
//   of 20 MiB below 10 MiB, else in a segment of its own, rounded up to 2 MiB;
// - of the pool's free blocks the best fit is taken: the smallest that is large enough, and of several equal
//   ones the first by (segment serial, offset), never by address, so that every device and every run makes
//   the same decisions;
// - what is left of the block is split off if it is at least 512 bytes (small pool, expandable segments) or
//   more than 1 MiB (large pool); else it stays with the block and counts as rounding;
// - a freed block merges with the free blocks beside it.
//
// With set_expandable(true) a pool's new memory comes as pages of one segment that grows:
// expandable_segments.cpp.
//
// In AddressSanitizer builds the decisions and the accounting are the same, but every block's bytes are a
// malloc of their own with exactly the requested size, so that overflows and uses after free are seen. (Not
// in private pools, whose addresses must come back.)
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
  int64_t serial, bytes;  // the serial counts up from 0 in the order of requests to the device
  bool small;             // which pool it belongs to
  char* base;
  Block* first;
  int64_t addresses;  // from base on; more than bytes only if it is expandable
  int64_t page;       // an expandable segment grows and shrinks by this; 0: it does neither
  int64_t pool;       // the private pool that it belongs to; 0: none
};

struct Block {  // a piece of a segment; owned by the allocator
  Segment* segment = nullptr;
  int64_t offset = 0, size = 0;  // within the segment, in bytes
  int64_t requested = 0;
  int64_t number = 0;  // of the allocations, while in use
  Kind kind = Kind::Other;
  std::string name;
  Shape shape;
  bool free = true;
  bool mapped = true;  // false: addresses without memory, free, in no pool; in expandable segments only
  Block *prev = nullptr, *next = nullptr;  // neighbours within the segment
  char* bytes = nullptr;                   // while in use: where its memory is
  char* data() const { return bytes; }
};

class Allocator {
 public:
  Allocator(std::unique_ptr<Source>, Meter&);
  // Releases every segment. A block still in use is a bug (a tensor that outlives its device): it is named on
  // stderr and the program aborts, because its next access would be to memory that is gone.
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // A block of at least `bytes` (0 is allowed and costs the smallest block). `shape` and `name` are for the
  // history and the message of OutOfMemory: the request, the table by kind, the largest blocks alive, and
  // what would help. An OutOfMemory leaves all blocks as they were; the cache has been emptied. Refuses
  // negative sizes.
  Block* allocate(int64_t bytes, Kind, std::string_view name, const Shape& shape = {});
  // Freeing a block twice is a bug and aborts with a sentence (a destructor calls this, so it cannot throw).
  // It is noticed unless the block has been handed out again in between.
  void free(Block*) noexcept;
  void change_kind(Block*, Kind);  // refuses a freed block
  // Returns every wholly free segment (but for those of private pools) to the device, and of expandable
  // segments every wholly free page.
  void empty_cache() noexcept;
  void set_budget(int64_t bytes);  // bounds `reserved`; 0: no bound. Segments held already stay.
  // Asked in turn when there is no memory left, again and again, until there is or none frees anything
  // (false).
  std::list<std::function<bool()>> make_room;
  // What is asked of the device from now on comes as pages of expandable segments. Off at first, as in
  // PyTorch.
  void set_expandable(bool on) { expandable_ = on; }

  // A private pool: segments (not expandable ones) that serve the requests made while the pool is in use, and
  // no others, with the first free block that is large enough. The same requests, after all blocks were given
  // back, get the same addresses. When the pool ends, its segments and the blocks in use go to the common
  // pool.
  int64_t begin_pool();
  void end_pool(int64_t pool) noexcept;
  int64_t allocations() const { return allocations_; }  // made so far
  int64_t pool() const { return pool_; }                // in use
  int64_t use_pool(int64_t pool);  // returns the one before; 0: the common one. Refuses one that has ended

  // Events are kept from now on, some 250 bytes of the host each. What is there already is recorded as if it
  // came now, under the op "before the history".
  void keep_history();
  const std::vector<MemoryEvent>& history() const;  // an Error if none is kept
  // Events and errors say what the program was in; by default nobody knows.
  void take_names_from(const Ranges& ranges) { ranges_ = &ranges; }
  std::string range() const { return ranges_ ? ranges_->path() : ""; }

  int64_t budget() const { return budget_; }
  Source& source() const { return *source_; }
  const Meter& meter() const { return meter_; }
  const std::map<int64_t, Segment>& segments() const { return segments_; }  // by serial

 private:
  struct Order {  // of free blocks: (size, segment serial, offset)
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const;
    bool operator()(const Block* a, int64_t size) const { return a->size < size; }
  };
  using FreeBlocks = std::set<Block*, Order>;

  FreeBlocks& pool(const Segment& s) { return free_.at({s.pool, s.small}); }
  bool within_budget(int64_t more) const { return budget_ == 0 || more <= budget_ - meter_.reserved(); }
  Block* find(int64_t size, bool small);  // at least so large, in no pool; nullptr: no memory
  Block* take_free_block(int64_t size, bool small);
  Block* new_segment(int64_t size, bool small);  // one free block, in no pool; nullptr: no memory
  Block* add_segment(Segment);                   // its only block
  void remove_segment(const Segment&) noexcept;  // of one free block, in no pool
  Block* cut(Block*, int64_t size);              // the rest
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
  std::map<std::pair<int64_t, bool>, FreeBlocks> free_;  // of each private pool, or 0; and whether small
  // Block objects are recycled, never destroyed: a second free() still finds a valid, free object.
  std::deque<Block> blocks_;
  std::vector<Block*> unused_;
};

// The message of OutOfMemory.
std::string out_of_memory_text(const Allocator&, int64_t bytes, Kind, std::string_view name, const Shape&);

}  // namespace gradus
