// Shared by the optimizers: a list of parameters as the argument of a launch, and access to elements of any
// mix of dtypes.
#pragma once
#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

constexpr int kEach = 4;                  // elements that a thread has in registers at a time
constexpr int kGroup = kEach * kThreads;  // elements that a block has in registers at a time
constexpr int kPiece = 4 * kGroup;        // elements of one parameter that a block takes

// A part of the list, passed by value because the list itself is in host memory (a launch takes at most 4 KB
// of arguments). The blocks from first_block[i] on, up to that of the next item, share the pieces of item i.
struct ParamChunk {
  static constexpr int kMost = 28;
  int count;
  ParamUpdate items[kMost];
  unsigned first_block[kMost];
};

// One launch for every 28 parameters; the kernel's first argument is the chunk.
template <class Kernel, class... A>
void launch_list(const Ctx& ctx, const char* name, ParamList list, Kernel kernel, A... args) {
  for (int64_t i = 0; i < list.count; ++i)
    visit_gpu(name, list.items[i].value.t, [&]<class T>() {});  // rejects fp64
  for (int64_t at = 0; at < list.count; at += ParamChunk::kMost) {
    ParamChunk chunk = {};
    unsigned blocks = 0;
    for (int64_t i = at; i < std::min(list.count, at + ParamChunk::kMost); ++i) {
      chunk.items[chunk.count] = list.items[i];
      chunk.first_block[chunk.count++] = blocks;
      blocks += blocks_for(list.items[i].n, kPiece);
    }
    launch(ctx, name, blocks, kThreads, 0, kernel, chunk, args...);
  }
}

// The item of the running block: the last item that begins at or before the block (items without elements
// have no blocks).
inline __device__ int item_of_block(const ParamChunk& chunk) {
  int i = 0;
  while (i + 1 < chunk.count && chunk.first_block[i + 1] <= blockIdx.x) ++i;
  return i;
}

// Reads and writes this thread's elements of a group, first, first + kThreads, ..., as fp32. One switch over
// the dtype serves all of them, so that their loads are in flight together. Elements past the end read as 0.
template <class T>
__device__ void read_as(const void* p, int64_t first, int64_t n, float (&r)[kEach]) {
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int64_t i = first + k * kThreads;
    r[k] = i < n ? load(static_cast<const T*>(p), i) : 0.0f;
  }
}
template <class Buffer>  // CBuf or Out
__device__ void read(Buffer x, int64_t first, int64_t n, float (&r)[kEach]) {
  visit_in_kernel(x.t, [&]<class T>() { read_as<T>(x.p, first, n, r); });
}
template <class T>
__device__ void write_as(void* p, int64_t first, int64_t n, const float (&r)[kEach]) {
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int64_t i = first + k * kThreads;
    if (i < n) store<Write::Set>(static_cast<T*>(p), i, r[k]);
  }
}
inline __device__ void write(Out y, int64_t first, int64_t n, const float (&r)[kEach]) {
  visit_in_kernel(y.t, [&]<class T>() { write_as<T>(y.p, first, n, r); });
}

// Calls f(first, w) for each group of the running block's piece of parameter u; f changes this thread's
// weights of the group, in fp32. All threads call f equally often, even without elements of their own.
template <class F>
__device__ void update_weights(const ParamChunk& params, int item, const ParamUpdate& u, F f) {
  const Out updated = u.master.p ? u.master : u.value;
  const int64_t begin = int64_t(blockIdx.x - params.first_block[item]) * kPiece;
  for (int64_t at = begin; at < u.n && at < begin + kPiece; at += kGroup) {
    const int64_t first = at + threadIdx.x;
    float w[kEach];
    read(updated, first, u.n, w);
    f(first, w);
    if (u.master.p) write(u.master, first, u.n, w);
    write(u.value, first, u.n, w);
  }
}

}  // namespace gradus::GRADUS_GPU
