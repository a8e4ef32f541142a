// The device `cuda`.
#pragma once
#include <memory>
#include <string>

#include "src/memory/source.h"

namespace gradus {

// Why cuda cannot be used and what to do about it, in a sentence; empty if it can be used.
std::string cuda_problem();

#ifdef GRADUS_CUDA
// GPU memory from cudaMalloc. One stream runs kernels and copies in order. Throws cuda_problem() if it is not
// empty.
std::unique_ptr<Source> cuda_source();
#endif

}  // namespace gradus
