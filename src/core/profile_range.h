// A labelled stretch of the program for NVIDIA's profilers: an NVTX range in builds with CUDA=1 (and without
// a profiler a call that returns at once), nothing in other builds.
//
//   nsys profile -t cuda,nvtx build/cuda/lessons/03_transformer --steps=20
#pragma once
#ifdef GRADUS_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace gradus {

class ProfileRange {
 public:
  explicit ProfileRange(const char* name) { push(name); }
  ~ProfileRange() { pop(); }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
  void next(const char* name) {  // ends the range and begins another
    pop();
    push(name);
  }

 private:
#ifdef GRADUS_CUDA
  static void push(const char* name) { nvtxRangePushA(name); }
  static void pop() { nvtxRangePop(); }
#else
  static void push(const char*) {}
  static void pop() {}
#endif
};

}  // namespace gradus
