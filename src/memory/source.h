// Where a device's segments come from, and how bytes get there and back. One small class for each kind of
// memory.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "src/core/timing.h"

namespace gradus {

// When a device comes to points of its queue, on this machine's clock. Where calls return when done, that is
// when they are noted.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  virtual void note() { times_.push_back(seconds_now()); }
  // Waits until the device has come to all points that were noted; gives those times, and forgets them.
  virtual std::vector<double> read() { return std::exchange(times_, {}); }

 private:
  std::vector<double> times_;
};

// What was queued once and is queued again by one call (CUDA: a graph).
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch() = 0;
};

class Source;
// A second queue of a device, of copies that go on beside its kernels. Where calls return when done, a copy
// is made at once.
class CopyQueue {
 public:
  explicit CopyQueue(Source& source) : source_(source) {}
  virtual ~CopyQueue() = default;
  // Queues a copy. It begins when the kernels that are queued by now are done, because they may use `to`.
  // `from_host` may be changed again after wait(); only from pinned memory does the call return at once.
  virtual void copy_in(void* to, const void* from_host, int64_t bytes);
  // Returns when all copies of this queue are done: kernels that are queued from now on find them.
  virtual void wait() {}

 private:
  Source& source_;
};

class Source {
 public:
  virtual ~Source() = default;
  // Sizes are multiples of 2 MiB; at least 64-byte aligned. nullptr: the device has no more.
  virtual void* acquire(int64_t bytes) = 0;
  virtual void release(void* p, int64_t bytes) noexcept = 0;
  // For segments that grow: addresses alone, behind whose pages map() puts memory and unmap() takes it away
  // when nothing uses it any more. A page is a multiple of 2 MiB, and is unmapped as it was mapped.
  virtual void* reserve(int64_t bytes) = 0;  // nullptr: there are not so many addresses
  virtual void unreserve(void* p, int64_t bytes) noexcept = 0;
  virtual bool map(void* page, int64_t bytes) = 0;  // false: the device has no more
  virtual void unmap(void* page, int64_t bytes) noexcept = 0;
  // 0 bytes is allowed, with any pointers. copy_in returns when from_host may be changed: the bytes are there
  // for what is queued later, and the host waits for the device only if it is far ahead of it. copy_out
  // waits.
  virtual void copy_in(void* to, const void* from_host, int64_t bytes) = 0;
  virtual void copy_out(void* to_host, const void* from, int64_t bytes) = 0;
  // What kernels and copies are queued on, and the wait for all of it; nothing where calls return when done.
  virtual void* stream() const { return nullptr; }
  virtual void synchronize() {}
  // Notes what `calls` queues on the stream, which is not done. Where calls return when done there is nothing
  // to note: nullptr, and none is made.
  virtual std::unique_ptr<DeviceGraph> graph(const std::function<void()>& /*calls*/) { return nullptr; }
  virtual std::unique_ptr<DeviceClock> clock() { return std::make_unique<DeviceClock>(); }
  // The device itself copies from memory of the host that is pinned (page-locked), while the host goes on.
  // Whole pages are pinned, so others that are pinned may not share them. It is unpinned before it is given
  // back.
  virtual void pin(void*, int64_t) {}
  virtual void unpin(void*) noexcept {}
  virtual std::unique_ptr<CopyQueue> copy_queue() { return std::make_unique<CopyQueue>(*this); }
  // Bytes of the device that are taken, by this program or others, with all that a driver or libraries keep:
  // on a GPU what nvidia-smi shows, on the host the memory of this process. -1: nobody knows.
  virtual int64_t occupied() const { return -1; }
  virtual bool on_host() const { return false; }  // the host may read and write the memory itself
  virtual bool has_data() const { return true; }  // false: addresses only
};

inline void CopyQueue::copy_in(void* to, const void* from_host, int64_t bytes) {
  source_.copy_in(to, from_host, bytes);
}

std::unique_ptr<Source> host_source();  // pages of the host, aligned to 2 MiB
// Addresses that nothing is behind. What is copied out is all ones: NaN in every floating type, -1 in
// integers.
std::unique_ptr<Source> meta_source();

}  // namespace gradus
