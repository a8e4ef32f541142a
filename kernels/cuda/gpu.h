// The tools that every kernel of kernels/cuda uses.
#pragma once
#include <utility>

#include "kernels/checks.h"
#include "kernels/cost.h"
#include "kernels/cuda/compiler.h"

namespace gradus::GRADUS_GPU {

#include "kernels/entries.inc"

constexpr int kThreads = 256;  // threads of a block, if the kernel needs no different number
constexpr int kWarp = 32;
constexpr uint32_t kAllLanes = 0xFFFFFFFF;

// The number of blocks of `each` elements that cover n.
inline unsigned blocks_for(int64_t n, int64_t each) { return unsigned((n + each - 1) / each); }

// kernel<<<grid, block, shared_bytes, stream>>>(args...), or the same on emu. `name` is the table's entry,
// for messages. An empty grid launches nothing.
template <class... P, class... A>
void launch(const Ctx& ctx, const char* name, dim3 grid, dim3 block, int64_t shared_bytes,
            void (*kernel)(P...), A... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
#ifdef __CUDACC__
  const auto ok = [name](cudaError_t e) {
    if (e != cudaSuccess) cudaGetLastError();  // or the next call would report it
    check(e == cudaSuccess, name,
          ": the GPU rejected the launch, or an earlier kernel failed: ", cudaGetErrorString(e));
  };
  constexpr int64_t kWithoutAsking = 48 << 10;
  if (shared_bytes > kWithoutAsking)
    ok(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)));
  // The result of this call belongs to this launch; cudaGetLastError after <<<>>> may return the error of an
  // earlier call.
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = size_t(shared_bytes);
  config.stream = static_cast<cudaStream_t>(ctx.stream);
  ok(cudaLaunchKernelEx(&config, kernel, P(args)...));
#else
  (void)ctx;
  emu::launch(emu::Launch{name, grid, block, shared_bytes}, [&] { kernel(P(args)...); });
#endif
}

// The dynamic shared memory of the running block, aligned to 16 bytes.
template <class T>
__device__ T* shared_memory() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char gradus_shared[];
  return reinterpret_cast<T*>(gradus_shared);
#else
  return static_cast<T*>(emu::dynamic_shared());
#endif
}

// Calls f.operator()<T>() with the C++ type of a dtype that GPU kernels take.
template <class F>
void visit_gpu(const char* op, DType t, F&& f) {
  switch (t) {
    case DType::F32: return f.template operator()<float>();
    case DType::BF16: return f.template operator()<bf16>();
    case DType::F16: return f.template operator()<fp16>();
    default:
      fail(op, ": dtype ", name_of(t),
           " has no GPU kernel; use fp32, bf16 or fp16 (only cpu has fp64, for tests)");
  }
}

// An element as fp32, in which all arithmetic is done.
template <class T>
__device__ float load(const T* p, int64_t i) {
  GRADUS_COUNT(count_load(sizeof(T)));
  return float(p[i]);
}
// Set: p[i] <- round(r). Add: p[i] <- round(p[i] + r).
template <Write W, class T>
__device__ void store(T* p, int64_t i, float r) {
  if constexpr (W == Write::Add) r = __fadd_rn(load(p, i), r);  // a plain + could become part of an fma
  GRADUS_COUNT(count_store(sizeof(T)));
  p[i] = T(r);
}

// Calls f.operator()<T, W>() for an output that is wanted.
template <class F>
void visit_out(const char* op, Out y, F f) {
  if (!y.wanted()) return;
  visit_gpu(op, y.t, [&]<class T>() { visit_write(y.w, [&]<Write W>() { f.template operator()<T, W>(); }); });
}

// y[i] = f(x[i]...), i < n, if y is wanted; without any x, y[i] = f(i). f is a struct that holds its data by
// value and whose operator() runs on the GPU. A thread takes several elements, a whole block apart, so that
// adjacent threads read adjacent elements and each thread has several loads in flight.
template <class F, class... X>
__device__ float element(const F& f, int64_t i, const X*... x) {
  if constexpr (sizeof...(X) == 0)
    return f(i);
  else
    return f(load(x, i)...);
}
template <Write W, class T, class F, class... X>
__global__ void map_kernel(int64_t n, T* y, F f, const X*... x) {
  constexpr int kEach = 16 / sizeof(T);
  const int64_t first = int64_t(blockIdx.x) * blockDim.x * kEach + threadIdx.x;
  float r[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k)
    if (first + k * blockDim.x < n) r[k] = element(f, first + k * blockDim.x, x...);
#pragma unroll
  for (int k = 0; k < kEach; ++k)
    if (first + k * blockDim.x < n) store<W>(y, first + k * blockDim.x, r[k]);
}
template <class T, class F, class... X>
void map_as(const Ctx& ctx, const char* name, int64_t n, Out y, F f, const X*... x) {
  if (!y.wanted()) return;
  visit_write(y.w, [&]<Write W>() {
    launch(ctx, name, blocks_for(n, kThreads * (16 / sizeof(T))), kThreads, 0, map_kernel<W, T, F, X...>, n,
           y.as<T>(), f, x...);
  });
}
// For inputs that all have the dtype of y.
template <class F, size_t N>
void map(const Ctx& ctx, const char* name, int64_t n, Out y, const NamedBuffer (&x)[N], F f) {
  for (const NamedBuffer& input : x) check_dtype(name, y.t, {input});
  visit_gpu(name, y.t, [&]<class T>() {
    [&]<size_t... I>(std::index_sequence<I...>) {
      map_as<T>(ctx, name, n, y, f, static_cast<const T*>(x[I].p)...);
    }
    (std::make_index_sequence<N>());
  });
}

// Reductions over the lanes of a warp, or over each kLanes adjacent lanes: every lane gets the same result.
template <int kLanes = kWarp, class A>
__device__ A warp_sum(A x) {
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}
template <int kLanes = kWarp>
__device__ float warp_max(float x) {
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, x, lanes);
    x = other > x ? other : x;
  }
  return x;
}

// A reduction over the threads of a block, which has whole warps: every thread gets the same result. All
// threads must call it.
template <class A, class Combine>
__device__ A block_reduce(A x, A neutral, Combine combine) {
  __shared__ A of_warp[32];
  x = combine(x);
  __syncthreads();  // threads may still read of_warp in an earlier call
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
  __syncthreads();
  return combine(threadIdx.x % kWarp < blockDim.x / kWarp ? of_warp[threadIdx.x % kWarp] : neutral);
}
struct WarpSum {
  template <class A>
  __device__ A operator()(A x) const {
    return warp_sum(x);
  }
};
struct WarpMax {
  __device__ float operator()(float x) const { return warp_max(x); }
};
template <class A>
__device__ A block_sum(A x) {
  return block_reduce(x, A(0), WarpSum());
}
inline __device__ float block_max(float x) { return block_reduce(x, -INFINITY, WarpMax()); }

// Checks a condition on data inside a kernel, which cannot return an error. On emu it throws an Error; on a
// GPU it prints a message and ends the program's work there. The message: before, value, after, row.
inline __device__ void device_check(bool ok, const char* before, int64_t value, const char* after,
                                    int64_t row) {
  if (ok) return;
#ifdef __CUDACC__
  printf("%s %lld %s %lld\n", before, static_cast<long long>(value), after, static_cast<long long>(row));
  __trap();
#else
  fail(before, " ", value, " ", after, " ", row);
#endif
}

// visit_gpu() inside a kernel, where each item of a list has its own dtype. The launch has rejected other
// dtypes with a message; on a GPU there is no message here, because printing takes registers.
template <class F>
__device__ void visit_in_kernel(DType t, F&& f) {
  switch (t) {
    case DType::F32: return f.template operator()<float>();
    case DType::BF16: return f.template operator()<bf16>();
    case DType::F16: return f.template operator()<fp16>();
    default:
#ifdef __CUDACC__
      __trap();
#else
      fail("a kernel was given ", name_of(t), ", which is not fp32, bf16 or fp16");
#endif
  }
}

// todo(), which a stubbed exercise calls, inside a kernel.
template <class... Unused>
__device__ void device_todo(const char* exercise, const char* what, const Unused&... unused) {
#ifdef __CUDACC__
  printf("exercise %s is open: %s\n", exercise, what);
  ((void)unused, ...);
  __trap();
#else
  todo(exercise, what, unused...);
#endif
}

}  // namespace gradus::GRADUS_GPU
