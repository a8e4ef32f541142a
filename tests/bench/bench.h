// What the benchmarks share: big random buffers on a device, and the copy bandwidth with which memory-bound
// kernels are compared.
#pragma once
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cost.h"
#include "kernels/cpu/parallel.h"
#include "src/core/args.h"
#include "src/core/rng.h"
#include "src/memory/device_timing.h"

#ifdef GRADUS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace gradus {

inline DType dtype_flag(Args& args, const std::string& help) {
  const std::string word = args.choice("dtype", "fp32", help, {"fp32", "bf16", "fp16", "fp64"});
  for (const DType t : {DType::F64, DType::BF16, DType::F16})
    if (word == name_of(t)) return t;
  return DType::F32;
}

// A buffer of one dtype, freed by the destructor. Random numbers are uniform in [0, 1), so that they are also
// valid second moments and probabilities; 2^16 of them are drawn and repeated, because drawing 256 MB would
// take longer than the timed kernels.
class BenchBuffer {
 public:
  BenchBuffer(Device& device, DType t, int64_t n)
      : device_(device),
        t_(t),
        n_(n),
        block_(device.allocator().allocate(n * size_of(t), Kind::Other, "bench")) {}
  ~BenchBuffer() { device_.allocator().free(block_); }
  BenchBuffer(const BenchBuffer&) = delete;
  BenchBuffer& operator=(const BenchBuffer&) = delete;

  CBuf in() const { return {block_->data(), t_}; }
  Out out(int64_t from = 0) const { return {block_->data() + from * size_of(t_), t_, Write::Set}; }
  int64_t bytes() const { return n_ * size_of(t_); }

  void randomize(uint64_t stream) {
    visit_float("bench", t_, [&]<class T>() {
      Rng rng(1, stream);
      std::vector<T> values(std::min(n_, kPeriod));
      for (T& v : values) v = T(acc_t<T>(rng.uniform()));
      repeat(values);
    });
  }
  void random_ids(int64_t below) {  // for int32
    Rng rng(1, 0);
    std::vector<int32_t> ids(std::min(n_, kPeriod));
    for (int32_t& id : ids) id = int32_t(rng.below(uint64_t(below)));
    repeat(ids);
  }

 private:
  static constexpr int64_t kPeriod = 1 << 16;
  template <class T>
  void repeat(const std::vector<T>& values) {
    const int64_t period = int64_t(values.size());
    for (int64_t at = 0; at < n_; at += period)
      device_.copy_in(block_->data() + at * size_of(t_), values.data(),
                      std::min(period, n_ - at) * size_of(t_));
  }
  Device& device_;
  DType t_;
  int64_t n_;
  Block* block_;
};

// Bytes that a copy within the device reads and writes per second: the driver's copy on a GPU; on the CPU
// that of all threads, in large pieces or in pieces of 4 KiB, whichever is faster, because memcpy treats the
// two differently (large copies bypass the cache).
inline double copy_bandwidth(Device& device, void* to, const void* from, int64_t bytes) {
#ifdef GRADUS_CUDA
  if (const auto stream = static_cast<cudaStream_t>(device.ctx().stream)) {
    const auto copy = [=] {
      const cudaError_t e = cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDeviceToDevice, stream);
      check(e == cudaSuccess, "bench: a copy within the GPU failed: ", cudaGetErrorString(e));
    };
    return 2.0 * double(bytes) / measure(device, copy).median;
  }
#endif
  const auto copy = [=](int64_t piece) {
    cpu::parallel_for(bytes, piece, [=](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += piece)
        std::memcpy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at,
                    std::min(piece, end - at));
    });
  };
  const double large = measure(device, [&] { copy(int64_t(1) << 26); }).median;
  const double small = measure(device, [&] { copy(4096); }).median;
  return 2.0 * double(bytes) / std::min(large, small);
}

}  // namespace gradus
