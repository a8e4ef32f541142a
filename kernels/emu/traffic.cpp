#include "kernels/emu/traffic.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "kernels/emu/emu.h"

namespace gradus::emu {

namespace {

struct Request {  // of a warp, whose lanes make it one after the other
  Where where;
  int64_t count = 0;
  uintptr_t sectors[32] = {};  // the distinct ones
};

// The counts of one CPU thread, which runs one block of GPU threads after another.
struct Counter {
  Traffic total;
  int64_t launch = 0;  // launch and block that `made` and `requests` belong to
  dim3 block;
  int64_t made[1024];                 // each GPU thread's number of accesses so far
  std::vector<Request> requests[32];  // each warp's
};

struct AllCounters {
  std::mutex mutex;
  std::deque<Counter> list;  // one for each CPU thread that has ever counted; their addresses never change
};
AllCounters& all() {
  static AllCounters counters;
  return counters;
}

Counter& mine() {
  static thread_local Counter* counter = [] {
    const std::lock_guard lock(all().mutex);
    return &all().list.emplace_back();
  }();
  return *counter;
}

// The next request, in the list of its warp, of the running GPU thread.
Request& next_request(Counter& c, Where where) {
  if (c.launch != launches() || c.block.x != blockIdx.x || c.block.y != blockIdx.y ||
      c.block.z != blockIdx.z) {
    c.launch = launches(), c.block = blockIdx;
    std::fill(std::begin(c.made), std::end(c.made), 0);
    for (std::vector<Request>& warp : c.requests) warp.clear();
  }
  const int64_t thread = (int64_t(threadIdx.z) * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  std::vector<Request>& warp = c.requests[thread / 32];
  const size_t k = size_t(c.made[thread]++);
  if (k == warp.size()) warp.push_back({.where = where});
  return warp[k];
}

}  // namespace

void reset_traffic() {
  for (Counter& c : all().list) c.total = {};
}

Traffic traffic() {
  Traffic sum;
  for (const Counter& c : all().list) {
    sum.loads.requests += c.total.loads.requests, sum.loads.sectors += c.total.loads.sectors;
    sum.stores.requests += c.total.stores.requests, sum.stores.sectors += c.total.stores.sectors;
    sum.shared_loads += c.total.shared_loads;
    sum.loaded += c.total.loaded, sum.stored += c.total.stored;
  }
  return sum;
}

void count_global(Access access, const void* p, int64_t bytes, bool wanted, Where where) {
  Counter& c = mine();
  Request& r = next_request(c, where);
  check(r.where == where, "emu: lanes of one warp access global memory at different places, lines ",
        r.where.line, " and ", where.line, " of ", where.file,
        "; a lane that skips an access must pass wanted = false");
  if (!wanted) return;
  Requests& total = access == Access::Load ? c.total.loads : c.total.stores;
  total.requests += r.count == 0;
  const uintptr_t first = reinterpret_cast<uintptr_t>(p) / Traffic::kSector;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(p) + uintptr_t(bytes) - 1) / Traffic::kSector;
  for (uintptr_t sector = first; sector <= last; ++sector) {
    if (std::find(r.sectors, r.sectors + r.count, sector) != r.sectors + r.count) continue;
    check(r.count < 32, "emu: a request of more than 32 sectors: give the access its natural alignment");
    r.sectors[r.count++] = sector;
    ++total.sectors;
  }
}

void collect_traffic() {
  Traffic& total = mine().total;
  total.loaded += loaded_here, total.stored += stored_here;
}

void count_shared_load() {
  Counter& c = mine();
  ++c.total.shared_loads;
}

}  // namespace gradus::emu
