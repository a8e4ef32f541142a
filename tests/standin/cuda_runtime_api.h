// The names of CUDA's runtime that the code around cuBLAS uses, in the namespace of that code, so that they
// never conflict with the real ones. standin.cpp implements them.
#pragma once

namespace gradus::standin {

enum cudaError_t { cudaSuccess = 0, cudaErrorNoDevice = 100 };
using cudaStream_t = void*;

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetLastError();  // and clears it
const char* cudaGetErrorString(cudaError_t);

enum cudaDataType { CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF };

}  // namespace gradus::standin
