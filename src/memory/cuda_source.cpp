#include "src/memory/cuda.h"

#ifndef GRADUS_CUDA

gradus::CudaFacts gradus::cuda_facts() { return {}; }

#else
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "kernels/check.h"

namespace gradus {

CudaFacts cuda_facts() {
  CudaFacts facts;
  facts.built_for = GRADUS_SM;
  const auto ok = [&facts](cudaError_t e) {
    if (e == cudaSuccess) return true;
    facts.error = cudaGetErrorString(e);
    cudaGetLastError();  // or the next launch would be blamed for it
    return false;
  };
  int gpus = 0;
  cudaDeviceProp gpu;
  size_t free = 0, all = 0;
  if (!ok(cudaDriverGetVersion(&facts.driver)) || !ok(cudaRuntimeGetVersion(&facts.runtime)) ||
      !ok(cudaGetDeviceCount(&gpus)) || gpus == 0 || !ok(cudaGetDeviceProperties(&gpu, 0)))
    return facts;
  facts.gpu = gpu.name;
  facts.sm = 10 * gpu.major + gpu.minor;
  if (runs_on(facts.built_for, facts.sm) == Runs::No || !ok(cudaMemGetInfo(&free, &all))) return facts;
  facts.free = int64_t(free), facts.all = int64_t(all);
  return facts;
}

namespace {

// An error of a kernel is reported by the first call that waits for it, whatever that call is about.
void check_cuda(cudaError_t e, const char* what) {
  check(e == cudaSuccess, "cuda: ", what, " failed: ", cudaGetErrorString(e),
        "; if a kernel printed a sentence before this, that is the reason");
}

class CudaSource : public Source {
 public:
  CudaSource() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    check_cuda(cudaMallocHost(&staging_, kStaging), "allocating pinned memory of the host");
  }
  ~CudaSource() override {
    cudaFreeHost(staging_);
    cudaStreamDestroy(stream_);
  }
  void* acquire(int64_t bytes) override {
    void* p = nullptr;
    const cudaError_t e = cudaMalloc(&p, size_t(bytes));
    if (e != cudaErrorMemoryAllocation) {
      check_cuda(e, "allocating GPU memory");
      return p;
    }
    cudaGetLastError();  // handled: it is the allocator that knows what to do
    return nullptr;
  }
  void release(void* p, int64_t) noexcept override { cudaFree(p); }  // waits for what still uses it

  // By way of pinned memory, which the GPU reads and writes itself: the copy is queued behind the kernels
  // before it, and when the stream has reached its end the bytes are there.
  void copy_in(void* to, const void* from_host, int64_t bytes) override {
    for (int64_t at = 0; at < bytes; at += kStaging) {
      const size_t n = size_t(std::min(kStaging, bytes - at));
      std::memcpy(staging_, static_cast<const char*>(from_host) + at, n);
      copy(static_cast<char*>(to) + at, staging_, n, cudaMemcpyHostToDevice);
    }
  }
  void copy_out(void* to_host, const void* from, int64_t bytes) override {
    for (int64_t at = 0; at < bytes; at += kStaging) {
      const size_t n = size_t(std::min(kStaging, bytes - at));
      copy(staging_, static_cast<const char*>(from) + at, n, cudaMemcpyDeviceToHost);
      std::memcpy(static_cast<char*>(to_host) + at, staging_, n);
    }
  }
  void* stream() const override { return stream_; }
  void synchronize() override { check_cuda(cudaStreamSynchronize(stream_), "running what was queued"); }

 private:
  static constexpr int64_t kStaging = int64_t(4) << 20;

  void copy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    check_cuda(cudaMemcpyAsync(to, from, n, kind, stream_), "a copy between host and GPU");
    synchronize();
  }
  cudaStream_t stream_ = nullptr;
  void* staging_ = nullptr;
};

}  // namespace

std::unique_ptr<Source> cuda_source() {
  const std::string problem = cuda_problem(cuda_facts());
  check(problem.empty(), problem);
  return std::make_unique<CudaSource>();
}

}  // namespace gradus
#endif
