// The device `cuda`: what it needs, found out before anything runs on it, so that a machine without a GPU
// gets a sentence and not a crash.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "src/memory/source.h"

namespace gradus {

struct CudaFacts {
  std::string built_for;      // the SMs of this build, as in "75 80 90a"; empty: built without CUDA=1
  int runtime = 0;            // the CUDA version of this build, as CUDA counts: 13000 is 13.0
  int driver = 0;             // the CUDA version that the driver is made for; 0: there is no driver
  std::string error;          // CUDA's own words, where it could not list or open a GPU
  std::string gpu;            // the name of the first GPU; empty: there is none
  int sm = 0;                 // its compute capability: 90 is 9.0
  int64_t free = 0, all = 0;  // its memory, in bytes
};
CudaFacts cuda_facts();  // of this build on this machine, now

// What is missing and what to do about it, in a sentence; empty if the device can be used.
std::string cuda_problem(const CudaFacts&);

// Whether a GPU runs kernels that were built for a list of SMs. Code for X.Y runs on X.Z from Z = Y on, code
// for X.Ya on X.Y alone. The first of the list, unless it ends in a letter, is also there as PTX, which the
// driver translates for every newer GPU.
enum class Runs { No, AsBuilt, Translated };
Runs runs_on(const std::string& built_for, int sm);

#ifdef GRADUS_CUDA
// GPU memory by cudaMalloc. One stream, on which kernels and copies follow each other. Throws the sentence of
// cuda_problem.
std::unique_ptr<Source> cuda_source();
#endif

}  // namespace gradus
