// The device `cuda`.
#pragma once
#include <memory>
#include <string>

#include "src/memory/source.h"

namespace gradus {

// Why it cannot be used and what to do about it, in a sentence; empty if it can.
std::string cuda_problem();

#ifdef GRADUS_CUDA
// GPU memory by cudaMalloc. One stream, on which kernels and copies follow each other. Throws the sentence of
// cuda_problem.
std::unique_ptr<Source> cuda_source();
#endif

}  // namespace gradus
