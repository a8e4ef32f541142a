// The files of kernels/cuda are CUDA C++, compiled twice: by nvcc for real GPUs (namespace gradus::cuda) and
// by g++ for `emu`, which runs them on the CPU (namespace gradus::emu). For their tests, g++ also compiles
// the files that call NVIDIA's libraries, with stand-ins for the libraries (namespace gradus::standin, by the
// Makefile).
#pragma once
#ifdef __CUDACC__
#include <cuda_runtime.h>
#define GRADUS_GPU cuda
#define GRADUS_COUNT(...)  // only emu counts memory traffic
#else
#include "kernels/emu/emu.h"
#include "kernels/emu/traffic.h"
#define GRADUS_COUNT(...) emu::__VA_ARGS__
#ifndef GRADUS_GPU
#define GRADUS_GPU emu
#endif
#endif
