// The caching allocator, one for all devices, with the published rules of PyTorch's CUDA allocator
// (c10/cuda/CUDACachingAllocator.cpp): 512-byte rounding; requests up to 1 MiB come from 2 MiB segments,
// those below 10 MiB from 20 MiB segments, larger ones get a segment rounded up to 2 MiB; blocks are split
// and merged; the best fit is the smallest block that is large enough. Ties go to (segment serial, offset),
// never to the address, so that every device and every run makes the same decisions.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "src/core/shape.h"
#include "src/memory/meter.h"

namespace gradus {

// Where segments come from: malloc, cudaMalloc, or nothing but addresses.
class Source {
 public:
  virtual ~Source() = default;
  virtual void* acquire(int64_t bytes) = 0;  // nullptr: the device has no more
  virtual void release(void* p, int64_t bytes) noexcept = 0;
};
std::unique_ptr<Source> host_source();  // 64-byte aligned host memory

struct OutOfMemory : Error {
  using Error::Error;
};

struct Segment;
struct Block {  // a piece of a segment; owned by the allocator
  Segment* segment;
  int64_t offset, size;  // within the segment, in bytes
  int64_t requested = 0;
  Kind kind = Kind::Other;
  std::string name = {};
  bool free = true;
  char* separate = nullptr;    // sanitizer builds: this block's own memory
  Block *prev = nullptr, *next = nullptr;  // neighbours within the segment
  char* data() const;
};

class Allocator {
 public:
  Allocator(std::unique_ptr<Source>, Meter&);
  ~Allocator();  // releases every segment
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // A block of at least `bytes` (0 is allowed and costs the smallest block). `shape` and `name` are for the
  // message of OutOfMemory: the request, the table by kind, the largest blocks alive, and what would help.
  Block* allocate(int64_t bytes, Kind, std::string_view name, const Shape& shape = {});
  void free(Block*) noexcept;
  void change_kind(Block*, Kind);
  void empty_cache() noexcept;     // returns every wholly free segment to the device
  void set_budget(int64_t bytes);  // bounds `reserved`; 0: no bound

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradus
