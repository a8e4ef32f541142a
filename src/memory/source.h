// The source of a device's memory: provides segments and copies bytes to and from the host. One small class
// per kind of memory.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "src/core/timing.h"

namespace gradus {

// The times at which a device reaches points of its queue, on the host's clock. If the device's calls return
// when done, note() reads the clock.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  virtual void note() { times_.push_back(seconds_now()); }
  // Waits until the device has reached all noted points, returns their times, and forgets them.
  virtual std::vector<double> read() { return std::exchange(times_, {}); }

 private:
  std::vector<double> times_;
};

// Recorded work that one call queues (a CUDA graph).
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch() = 0;
};

class Source;
// A second queue of a device, for copies that overlap its kernels. If the device's calls return when done,
// copy_in() copies at once.
class CopyQueue {
 public:
  explicit CopyQueue(Source& source) : source_(source) {}
  virtual ~CopyQueue() = default;
  // Queues a copy. It begins when all kernels queued so far are done, because they may use `to`. The caller
  // may change `from_host` after wait(). The call returns at once only if `from_host` is pinned.
  virtual void copy_in(void* to, const void* from_host, int64_t bytes);
  // Returns when all copies of this queue are done, so kernels that are queued later see them.
  virtual void wait() {}

 private:
  Source& source_;
};

class Source {
 public:
  virtual ~Source() = default;
  // Sizes are multiples of 2 MiB; at least 64-byte aligned. nullptr: the device has no memory left.
  virtual void* acquire(int64_t bytes) = 0;
  virtual void release(void* p, int64_t bytes) noexcept = 0;
  // For segments that grow: reserve() provides addresses without memory, map() maps memory at a page, and
  // unmap() returns it when nothing uses it any more. A page is a multiple of 2 MiB and is unmapped as it was
  // mapped.
  virtual void* reserve(int64_t bytes) = 0;  // nullptr: too few addresses are left
  virtual void unreserve(void* p, int64_t bytes) noexcept = 0;
  virtual bool map(void* page, int64_t bytes) = 0;  // false: no memory left
  virtual void unmap(void* page, int64_t bytes) noexcept = 0;
  // 0 bytes are allowed, with any pointers. copy_in returns when the caller may change from_host; work that
  // is queued later sees the bytes, and the host waits only if it is far ahead of the device. copy_out waits
  // for the device.
  virtual void copy_in(void* to, const void* from_host, int64_t bytes) = 0;
  virtual void copy_out(void* to_host, const void* from, int64_t bytes) = 0;
  // The queue of kernels and copies (CUDA: a stream), and the wait for all queued work. If calls return when
  // done, there is no queue and no wait.
  virtual void* stream() const { return nullptr; }
  virtual void synchronize() {}
  // Records the work that `calls` queues on the stream, without running it. If calls return when done,
  // returns nullptr and makes no calls.
  virtual std::unique_ptr<DeviceGraph> graph(const std::function<void()>& /*calls*/) { return nullptr; }
  virtual std::unique_ptr<DeviceClock> clock() { return std::make_unique<DeviceClock>(); }
  // The device copies pinned (page-locked) host memory itself, while the host continues. Whole pages are
  // pinned, so two pinned ranges must not share a page. Unpin memory before freeing it.
  virtual void pin(void*, int64_t) {}
  virtual void unpin(void*) noexcept {}
  virtual std::unique_ptr<CopyQueue> copy_queue() { return std::make_unique<CopyQueue>(*this); }
  // Occupied bytes of the device, by this program and others, including the driver and libraries: on a GPU
  // the number that nvidia-smi shows, on the host the memory of this process. -1: unknown.
  virtual int64_t occupied() const { return -1; }
  virtual bool on_host() const { return false; }  // the host may read and write the memory itself
  virtual bool has_data() const { return true; }  // false: addresses only
};

inline void CopyQueue::copy_in(void* to, const void* from_host, int64_t bytes) {
  source_.copy_in(to, from_host, bytes);
}

std::unique_ptr<Source> host_source();  // pages of the host, aligned to 2 MiB
// Addresses without memory. copy_out gives bytes of all ones: NaN in every floating type, -1 in integers.
std::unique_ptr<Source> meta_source();

}  // namespace gradus
