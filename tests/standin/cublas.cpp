// cuBLAS's product, element by element, and the conditions that cuBLAS sets for its caller (its
// documentation, sections 2.4 and 2.8): matrices are column-major, and ld is at least the height of a column
// as stored.
#include <algorithm>
#include <bit>
#include <thread>

#include "kernels/dtype.h"
#include "tests/standin/cublas_v2.h"
#include "tests/standin/standin.h"

namespace gradus::standin {

// A handle belongs to the GPU that was current when it was created, and serves one thread at a time.
struct cublasContext {
  int gpu;
  std::thread::id thread;
  int math = CUBLAS_DEFAULT_MATH;
  bool workspace = false;
};

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the handle is of a different GPU or thread, or not created";
    case CUBLAS_STATUS_ALLOC_FAILED: return "no workspace was given, so cuBLAS would have to allocate one";
    case CUBLAS_STATUS_INVALID_VALUE: return "a size, stride or leading dimension is impossible";
    default: return "not supported";
  }
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  ++machine().cublas_handles;
  *handle = new cublasContext{machine().gpu, std::this_thread::get_id()};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t) {
  handle->workspace = false;  // the real one also returns to its own workspace
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes) {
  if (std::bit_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  handle->workspace = workspace != nullptr && bytes > 0;
  return CUBLAS_STATUS_SUCCESS;
}

static float element(const void* p, cudaDataType t, int64_t i) {
  if (t == CUDA_R_32F) return static_cast<const float*>(p)[i];
  return t == CUDA_R_16F ? float(static_cast<const fp16*>(p)[i]) : float(static_cast<const bf16*>(p)[i]);
}
static void set_element(void* p, cudaDataType t, int64_t i, float x) {
  if (t == CUDA_R_32F)
    static_cast<float*>(p)[i] = x;
  else if (t == CUDA_R_16F)
    static_cast<fp16*>(p)[i] = fp16(x);
  else
    static_cast<bf16*>(p)[i] = bf16(x);
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t transa,
                                             cublasOperation_t transb, int64_t m, int64_t n, int64_t k,
                                             const void* alpha, const void* A, cudaDataType Atype,
                                             int64_t lda, long long strideA, const void* B,
                                             cudaDataType Btype, int64_t ldb, long long strideB,
                                             const void* beta, void* C, cudaDataType Ctype, int64_t ldc,
                                             long long strideC, int64_t batchCount,
                                             cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (!handle || handle->gpu != machine().gpu || handle->thread != std::this_thread::get_id())
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!handle->workspace) return CUBLAS_STATUS_ALLOC_FAILED;
  const auto least = [](int64_t height) { return std::max<int64_t>(1, height); };
  if (m < 0 || n < 0 || k < 0 || batchCount < 0 || lda < least(transa == CUBLAS_OP_N ? m : k) ||
      ldb < least(transb == CUBLAS_OP_N ? k : n) || ldc < least(m))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (Atype != Btype || (Ctype != Atype && Ctype != CUDA_R_32F) || compute != CUBLAS_COMPUTE_32F ||
      handle->math != CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  ++machine().cublas_products;
  const float a_factor = *static_cast<const float*>(alpha), c_factor = *static_cast<const float*>(beta);
  for (int64_t b = 0; b < batchCount; ++b)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < m; ++i) {
        float sum = 0;
        for (int64_t l = 0; l < k; ++l) {
          const int64_t a_at = transa == CUBLAS_OP_N ? l * lda + i : i * lda + l;
          const int64_t b_at = transb == CUBLAS_OP_N ? j * ldb + l : l * ldb + j;
          sum += element(A, Atype, b * strideA + a_at) * element(B, Btype, b * strideB + b_at);
        }
        const int64_t at = b * strideC + j * ldc + i;
        const float old = c_factor == 0 ? 0 : c_factor * element(C, Ctype, at);  // with 0, C is not read
        set_element(C, Ctype, at, old + a_factor * sum);
      }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace gradus::standin
