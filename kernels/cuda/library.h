// Handles for NVIDIA's libraries, one for each GPU and each thread of the host. A file that includes this one
// must define GRADUS_GPU (compiler.h).
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
  if (e != cudaSuccess) cudaGetLastError();  // or the next call would report it
  check(e == cudaSuccess, "there is no GPU (", cudaGetErrorString(e),
        "); is its driver running (nvidia-smi)?");
  return id;
}

// One T for each GPU and thread: a handle belongs to a GPU, and serves one thread at a time. The first call
// constructs the T. It is never destroyed, because CUDA may shut down earlier than the program.
template <class T>
T& of_gpu_and_thread() {
  static auto* const all = new std::map<std::pair<int, std::thread::id>, T>;
  static std::mutex mutex;
  const std::pair key(current_gpu(), std::this_thread::get_id());
  const std::lock_guard lock(mutex);
  return (*all)[key];
}

}  // namespace gradus::GRADUS_GPU
