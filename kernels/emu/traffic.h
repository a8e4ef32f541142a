// Counted memory traffic of kernels on emu: what a GPU's profiler calls requests and sectors. The 32 lanes of
// a warp execute a load together: one request, for which memory moves every 32-byte sector that some lane
// touches. If adjacent lanes read adjacent floats, a request has 4 sectors; if lanes read a column, 32. All
// requests of warps are counted, although on a GPU the caches serve a part of them.
#pragma once
#include <cstdint>

#include "kernels/emu/where.h"

namespace gradus::emu {

struct Requests {
  int64_t requests = 0, sectors = 0;
  bool operator==(const Requests&) const = default;
};
struct Traffic {
  static constexpr int64_t kSector = 32;  // bytes
  Requests loads, stores;                 // of global memory, by warps
  int64_t shared_loads = 0;               // of shared memory, by threads
  int64_t loaded = 0, stored = 0;         // bytes that load() and store() of kernels/cuda/gpu.h moved
  int64_t bytes() const { return kSector * (loads.sectors + stores.sectors); }
  double sectors_per_load() const { return double(loads.sectors) / double(loads.requests); }
  bool operator==(const Traffic&) const = default;
};

void reset_traffic();
Traffic traffic();  // since reset_traffic(); the same for every order of threads and number of CPU threads

// kernels/cuda/counted.h calls these for each access of a GPU thread. On emu the lanes of a warp run one
// after the other: the k-th accesses of all lanes are the warp's k-th request. So a lane that skips an access
// of the others must pass wanted = false, or must have returned; accesses at different lines are an Error.
enum class Access { Load, Store };
void count_global(Access, const void* p, int64_t bytes, bool wanted, Where);
void count_shared_load();

// Every load() and store() of every kernel is counted, so counting must be cheap: the CPU thread that runs
// the block counts in its own variables, and emu::launch collects the counts of a launch.
constinit inline thread_local int64_t loaded_here = 0, stored_here = 0;
inline void count_load(int64_t bytes) { loaded_here += bytes; }
inline void count_store(int64_t bytes) { stored_here += bytes; }
void collect_traffic();

}  // namespace gradus::emu
