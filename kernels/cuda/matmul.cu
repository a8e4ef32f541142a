// Matrix products by cuBLAS; on emu the CPU's matmul takes its place (kernels/emu/matmul.cpp).
//
// Sums are fp32: no TF32, and no 16-bit sums if cuBLAS divides K into parts. The results of the same call on
// the same GPU are bitwise equal: one stream, a workspace of our own, no atomics (cuBLAS's default).
//
// Write::Add is cuBLAS's beta = 1. cuBLAS does not always keep the contract, C <- round(C + alpha sum). It
// may choose a different algorithm than for Set (then the sum differs in its last bits), it may multiply by
// an alpha other than 1 in the same fma, and it may add round(alpha sum) to a 16-bit C. On an H200 the last
// happens for every fourth shape; PyTorch does the same with this library. CUBLAS_COMPUTE_32F_PEDANTIC rounds
// once, at a 24th of the speed.
#include <cublas_v2.h>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/library.h"

namespace gradus::GRADUS_GPU {

static void ok(cublasStatus_t status, const char* what) {
  check(status == CUBLAS_STATUS_SUCCESS, "matmul: cuBLAS could not ", what, ": ",
        cublasGetStatusString(status),
        status == CUBLAS_STATUS_ALLOC_FAILED ? "; is the GPU's memory full?" : "");
}

// The first product of a GPU and thread creates the handle, which takes longer than many products.
static cublasHandle_t handle_for(const Ctx& ctx) {
  cublasHandle_t& handle = of_gpu_and_thread<cublasHandle_t>();
  if (!handle) {
    cublasHandle_t made;
    ok(cublasCreate(&made), "start");
    ok(cublasSetMathMode(
           made, cublasMath_t(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
       "set its arithmetic");
    handle = made;
  }
  ok(cublasSetStream(handle, static_cast<cudaStream_t>(ctx.stream)), "use the device's stream");
  ok(cublasSetWorkspace(handle, ctx.workspace, size_t(kWorkspaceBytes)), "use the device's workspace");
  return handle;
}

static cudaDataType cuda_type(DType t) {
  return t == DType::F32 ? CUDA_R_32F : t == DType::BF16 ? CUDA_R_16BF : CUDA_R_16F;
}
static cublasOperation_t cublas_op(Trans t) { return t == Trans::Yes ? CUBLAS_OP_T : CUBLAS_OP_N; }

static const char* at(CBuf x, int64_t element) { return x.as<char>() + element * size_of(x.t); }

void matmul(const Ctx& ctx, const MatmulShape& s, CBuf a, CBuf b, Out c) {
  if (!c.wanted()) return;
  check_matmul(s, a, b, c);
  visit_gpu("matmul", a.t, [&]<class T>() {});  // rejects fp64
  if (s.M == 0 || s.N == 0) return;
  // cuBLAS goes through the longer batch dimension, a loop goes through the other one.
  const bool outer_is_longer = s.batch[0].count > s.batch[1].count;
  const Batch &looped = s.batch[outer_is_longer], &walked = s.batch[!outer_is_longer];
  const float alpha = s.alpha, beta = c.w == Write::Add ? 1 : 0;
  const cublasHandle_t handle = handle_for(ctx);
  const auto ld = [](int64_t rows_apart) { return std::max<int64_t>(rows_apart, 1); };  // it is 0 if K is
  // cuBLAS's matrices are column-major. Read in this way, our row-major matrices are transposed, and
  // C^T = op(B)^T op(A)^T: the call has A and B, M and N exchanged.
  for (int64_t i = 0; i < looped.count; ++i)
    ok(cublasGemmStridedBatchedEx_64(
           handle, cublas_op(s.tb), cublas_op(s.ta), s.N, s.M, s.K, &alpha, at(b, i * looped.stride_b),
           cuda_type(b.t), ld(s.ldb), walked.stride_b, at(a, i * looped.stride_a), cuda_type(a.t), ld(s.lda),
           walked.stride_a, &beta, c.as<char>() + i * looped.stride_c * size_of(c.t), cuda_type(c.t),
           ld(s.ldc), walked.stride_c, walked.count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
       "multiply");
}

}  // namespace gradus::GRADUS_GPU
