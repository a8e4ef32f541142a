// What NVIDIA's libraries need of the caller, for each GPU and each thread of the host. Who includes this has
// GRADUS_GPU (compiler.h).
#pragma once
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/check.h"

namespace gradus::GRADUS_GPU {

inline int current_gpu() {
  int id = 0;
  const cudaError_t e = cudaGetDevice(&id);
  if (e != cudaSuccess) cudaGetLastError();  // CUDA keeps it for whoever asks next
  check(e == cudaSuccess, "there is no GPU (", cudaGetErrorString(e),
        "); is its driver running (nvidia-smi)?");
  return id;
}

// One T for each GPU and thread: a handle belongs to a GPU, and serves one thread at a time. Made when first
// asked for and never destroyed, because CUDA may be gone when the program ends.
template <class T>
T& of_gpu_and_thread() {
  static auto* const all = new std::map<std::pair<int, std::thread::id>, T>;
  static std::mutex mutex;
  const std::pair key(current_gpu(), std::this_thread::get_id());
  const std::lock_guard lock(mutex);
  return (*all)[key];
}

}  // namespace gradus::GRADUS_GPU
