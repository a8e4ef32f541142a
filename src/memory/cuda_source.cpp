#include "src/memory/cuda.h"

#ifndef GRADUS_CUDA

std::string gradus::cuda_problem() {
  return "device: cuda cannot be used: this build has no cuda; build with `make CUDA=1` where the CUDA "
         "toolkit is. --device=emu runs the same kernels on the CPU";
}

#else
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/kernels.h"
#include "src/memory/cuda_stream.h"

namespace gradus {

std::string cuda_problem() {
  const char* const error = cuda_error();
  if (!error) return "";
  return std::string("device: cuda cannot be used: CUDA says: ") + error +
         "; `nvidia-smi` must list a GPU and a driver for CUDA " + std::to_string(CUDART_VERSION / 1000) +
         "." + std::to_string(CUDART_VERSION % 1000 / 10) +
         ", and this build must be for that GPU (SM=\"" GRADUS_SM
         "\"). --device=emu runs the same kernels on the CPU";
}

namespace {

// The driver's functions for virtual memory management. They are looked up at the first use, because a
// program that is linked to the driver would not start on a machine without one.
struct Driver {
  decltype(&cuGetErrorString) error_string;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) unreserve;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuMemUnmap) unmap;

  Driver() {
    find(error_string, "cuGetErrorString");
    find(reserve, "cuMemAddressReserve");
    find(unreserve, "cuMemAddressFree");
    find(create, "cuMemCreate");
    find(release, "cuMemRelease");
    find(map, "cuMemMap");
    find(set_access, "cuMemSetAccess");
    find(unmap, "cuMemUnmap");
  }

 private:
  template <class F>
  static void find(F*& function, const char* name) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    constexpr int kSince = 10020;  // CUDA 10.2 introduced these functions
    check_cuda(cudaGetDriverEntryPointByVersion(name, &address, kSince, cudaEnableDefault, &found), name);
#else
    check_cuda(cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found), name);
#endif
    check(found == cudaDriverEntryPointSuccess, "cuda: this driver has no ", name,
          "; install a newer one, or leave expandable segments off");
    function = reinterpret_cast<F*>(address);
  }
};

const Driver& driver() {
  static const Driver found;
  return found;
}

void check_driver(CUresult e, const char* what) {
  const char* why = nullptr;
  if (e != CUDA_SUCCESS) driver().error_string(e, &why);
  check(e == CUDA_SUCCESS, "cuda: ", what, " failed: ", why ? why : "an error without a name",
        "; where a GPU or its driver has no virtual memory management, leave expandable segments off");
}

class CudaSource : public Source {
 public:
  CudaSource() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
    check_cuda(cudaMallocHost(&staging_, 2 * kHalf), "allocating pinned host memory");
    for (cudaEvent_t& e : read_)
      check_cuda(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "creating an event");
  }
  ~CudaSource() override {
    cudaStreamSynchronize(stream_);  // a copy may still read the pinned memory
    for (cudaEvent_t e : read_) cudaEventDestroy(e);
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
    cudaGetLastError();  // clears the error; the allocator handles it
    return nullptr;
  }
  void release(void* p, int64_t) noexcept override { cudaFree(p); }  // waits for kernels that still use it

  void* reserve(int64_t bytes) override {
    CUdeviceptr p = 0;
    const CUresult e = driver().reserve(&p, size_t(bytes), 0, 0, 0);
    if (e == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
    check_driver(e, "reserving addresses");
    return reinterpret_cast<void*>(p);
  }
  void unreserve(void* p, int64_t bytes) noexcept override {  // fails only after a kernel failed; see unmap
    driver().unreserve(reinterpret_cast<CUdeviceptr>(p), size_t(bytes));
  }
  bool map(void* page, int64_t bytes) override {
    CUmemAllocationProp property{};
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    property.location.id = 0;
    CUmemAccessDesc access{};
    access.location = property.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUmemGenericAllocationHandle memory = 0;
    const CUresult e = driver().create(&memory, size_t(bytes), &property, 0);
    if (e == CUDA_ERROR_OUT_OF_MEMORY) return false;
    check_driver(e, "allocating a page");
    const CUdeviceptr p = reinterpret_cast<CUdeviceptr>(page);
    check_driver(driver().map(p, size_t(bytes), 0, memory, 0), "mapping a page");
    check_driver(driver().release(memory), "releasing a page");  // the memory lives as long as it is mapped
    check_driver(driver().set_access(p, size_t(bytes), &access, 1), "making a page writable");
    return true;
  }
  // cuMemUnmap need not wait for kernels that still use the page. If one of the two calls fails, a kernel has
  // failed before and all memory of the GPU is lost; the next wait for a result reports it.
  void unmap(void* page, int64_t bytes) noexcept override {
    if (cudaStreamSynchronize(stream_) == cudaSuccess)
      driver().unmap(reinterpret_cast<CUdeviceptr>(page), size_t(bytes));
  }

  // Copies go through pinned memory, which the GPU reads and writes itself, so a copy is queued behind the
  // kernels before it. The buffer has two halves: the host fills one while the GPU reads the other.
  void copy_in(void* to, const void* from_host, int64_t bytes) override {
    for (int64_t at = 0, n = 0; at < bytes; at += n, filled_ += n) {
      if (filled_ == kHalf) next_half();
      n = std::min(kHalf - filled_, bytes - at);
      std::memcpy(half() + filled_, static_cast<const char*>(from_host) + at, size_t(n));
      copy(static_cast<char*>(to) + at, half() + filled_, n, cudaMemcpyHostToDevice);
    }
  }
  void copy_out(void* to_host, const void* from, int64_t bytes) override {
    for (int64_t at = 0; at < bytes; at += kHalf) {
      const int64_t n = std::min(kHalf, bytes - at);
      next_half();
      copy(half(), static_cast<const char*>(from) + at, n, cudaMemcpyDeviceToHost);
      synchronize();
      std::memcpy(static_cast<char*>(to_host) + at, half(), size_t(n));
    }
  }
  int64_t occupied() const override {
    size_t free = 0, all = 0;
    check_cuda(cudaMemGetInfo(&free, &all), "querying the GPU's free memory");
    return int64_t(all - free);
  }
  void* stream() const override { return stream_; }
  void synchronize() override { check_cuda(cudaStreamSynchronize(stream_), "waiting for queued work"); }

  std::unique_ptr<DeviceGraph> graph(const std::function<void()>& calls) override {
    return std::make_unique<CudaGraph>(stream_, calls);
  }
  std::unique_ptr<DeviceClock> clock() override { return std::make_unique<CudaClock>(stream_); }
  void pin(void* p, int64_t bytes) override {
    char* const end = static_cast<char*>(p) + bytes;
    check_cuda(cudaHostRegister(page_of(p), size_t(end - page_of(p)), cudaHostRegisterDefault),
               "pinning host memory");
  }
  void unpin(void* p) noexcept override { cudaHostUnregister(page_of(p)); }
  std::unique_ptr<CopyQueue> copy_queue() override { return std::make_unique<CudaCopyQueue>(*this, stream_); }

 private:
  static constexpr int64_t kHalf = int64_t(4) << 20;

  void copy(void* to, const void* from, int64_t n, cudaMemcpyKind kind) {
    check_cuda(cudaMemcpyAsync(to, from, size_t(n), kind, stream_), "a copy between host and GPU");
  }
  static char* page_of(void* p) {
    return static_cast<char*>(p) - uintptr_t(p) % uintptr_t(sysconf(_SC_PAGESIZE));
  }
  char* half() { return static_cast<char*>(staging_) + second_ * kHalf; }
  // Switches to the beginning of the other half, once the GPU has read its contents.
  void next_half() {
    check_cuda(cudaEventRecord(read_[second_], stream_), "recording an event");
    second_ = !second_, filled_ = 0;
    check_cuda(cudaEventSynchronize(read_[second_]), "waiting for queued work");
  }
  cudaStream_t stream_ = nullptr;
  void* staging_ = nullptr;
  cudaEvent_t read_[2] = {};  // per half: the GPU has read its contents
  bool second_ = false;       // the second half is being filled
  int64_t filled_ = 0;
};

}  // namespace

std::unique_ptr<Source> cuda_source() {
  const std::string problem = cuda_problem();
  check(problem.empty(), problem);
  return std::make_unique<CudaSource>();
}

}  // namespace gradus
#endif
