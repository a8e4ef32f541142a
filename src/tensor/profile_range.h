// A labelled stretch of the program. The memory history names it with everything that happens within; in
// builds with CUDA=1 it is also an NVTX range for NVIDIA's profilers (without one, a call that returns at
// once).
//
//   nsys profile -t cuda,nvtx build/cuda/lessons/03_transformer --steps=20
#pragma once
#ifdef GRADUS_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

#include "src/tensor/context.h"

namespace gradus {

class ProfileRange {
 public:
  explicit ProfileRange(const char* name)
      : innermost_(current().device.allocator().range), here_{name, innermost_} {
    innermost_ = &here_;
    push(name);
  }
  ~ProfileRange() {
    innermost_ = here_.outer;
    pop();
  }
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
  void next(const char* name) {  // ends the range and begins another
    here_.name = name;
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
  const NamedRange*& innermost_;
  NamedRange here_;
};

}  // namespace gradus
