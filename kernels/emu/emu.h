// With this header, an ordinary C++ compiler compiles a CUDA kernel for the CPU: it defines the words of CUDA
// C++ that the kernels of kernels/cuda use, and launch().
//
// Every GPU thread is a fiber; the threads of a block take turns on one CPU thread, and a turn ends where
// threads must wait for each other: at __syncthreads and the warp functions. So if a kernel lacks a barrier,
// whether a thread sees the value of another thread depends on the order of turns. set_order changes that
// order, and whether a warp runs ahead of the others; the tests compare the results. The CPU's cores share
// the blocks.
#pragma once
#include <atomic>
#include <bit>
#include <cstdint>

#include "kernels/check.h"
#include "kernels/emu/order.h"
#include "kernels/emu/where.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// A CPU thread runs one block at a time, from its first instruction to its last.
#define __shared__ static thread_local

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
// The values of the running GPU thread.
inline constinit thread_local dim3 threadIdx{0, 0, 0}, blockIdx{0, 0, 0}, blockDim, gridDim;
constexpr int warpSize = 32;
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace gradus::emu {

struct Launch {
  const char* kernel;  // its name, for messages
  dim3 grid, block;
  int64_t shared_bytes;  // of dynamic shared memory
};
// Runs call(arguments) once for every GPU thread; returns when all have finished. Rethrows a thread's
// exception. Throws an Error that names the kernel if a GPU would reject the launch, if threads wait for
// threads that will not arrive, and if the kernel writes past the dynamic shared memory.
void launch(const Launch&, void (*call)(const void*), const void* arguments);
template <class F>
void launch(const Launch& l, const F& body) {
  launch(
      l, [](const void* f) { (*static_cast<const F*>(f))(); }, &body);
}
int64_t launches();  // the number of launches so far, including the running one

enum class WarpOp { Shuffle, Ballot, Sync };

void* dynamic_shared();  // the running block's; filled with 0xFF bytes (NaN) when the block starts
void wait_for_block(Here);
// Waits for all lanes of `mask`. Shuffle: returns the bits that lane `source` gave. Ballot: returns the lanes
// whose bits are not 0.
uint64_t exchange(WarpOp, uint32_t mask, uint64_t bits, int source, Here);
int lane();

// If the source lane is outside the warp or not in the mask, the result is the caller's own value.
template <class T>
T shuffle(uint32_t mask, T value, int source, bool inside, Here where) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  const uint64_t got =
      exchange(WarpOp::Shuffle, mask, std::bit_cast<Bits>(value), inside ? source : lane(), where);
  return std::bit_cast<T>(Bits(got));
}

}  // namespace gradus::emu

inline void __syncthreads(gradus::emu::Here where = gradus::emu::Where::current()) {
  gradus::emu::wait_for_block(where);
}
inline void __syncwarp(uint32_t mask = 0xFFFFFFFF, gradus::emu::Here where = gradus::emu::Where::current()) {
  gradus::emu::exchange(gradus::emu::WarpOp::Sync, mask, 0, 0, where);
}
template <class T>
T __shfl_sync(uint32_t mask, T v, int source, gradus::emu::Here where = gradus::emu::Where::current()) {
  return gradus::emu::shuffle(mask, v, source % 32, true, where);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T v, int lanes, gradus::emu::Here where = gradus::emu::Where::current()) {
  const int source = gradus::emu::lane() ^ lanes;
  return gradus::emu::shuffle(mask, v, source, source < 32, where);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T v, int by, gradus::emu::Here where = gradus::emu::Where::current()) {
  const int source = gradus::emu::lane() + by;
  return gradus::emu::shuffle(mask, v, source, source < 32, where);
}
inline uint32_t __ballot_sync(uint32_t mask, int yes,
                              gradus::emu::Here where = gradus::emu::Where::current()) {
  return uint32_t(gradus::emu::exchange(gradus::emu::WarpOp::Ballot, mask, yes != 0, 0, where));
}

template <class T>
T atomicAdd(T* p, T v) {
  return std::atomic_ref<T>(*p).fetch_add(v, std::memory_order_relaxed);
}

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline int __popc(uint32_t x) { return std::popcount(x); }
