// The files of kernels/cuda are CUDA C++, compiled twice: by nvcc for real GPUs (namespace gradus::cuda) and
// by g++ for `emu`, which runs them on the CPU (namespace gradus::emu).
#pragma once
#ifdef __CUDACC__
#include <cuda_runtime.h>
#define GRADUS_GPU cuda
#else
#include "kernels/emu/emu.h"
#define GRADUS_GPU emu
#endif
