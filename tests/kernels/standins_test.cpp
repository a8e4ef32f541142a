// The code around cuBLAS and cuDNN where the machine is not as it should be; only a stand-in can be made so.
#include <thread>

#include "tests/kernels/libraries_testing.h"
#include "tests/standin/cublas_v2.h"

namespace gradus {
namespace {

class L03_OnStandins : public ::testing::Test {
 protected:
  standin::Machine& machine = standin::machine() = {};
  const AttentionShape shape = packed(1, 2, 16, 8, Mask::Causal);
  void SetUp() override { turn = on_standins(); }
  void TearDown() override {
    turn = turns().front();
    machine = {};
  }
};

TEST_F(L03_OnStandins, CublasRefusesRowsThatOverlap) {
  using namespace standin;
  static cublasHandle_t handle;  // they are never destroyed
  TestCtx ctx;
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  cublasSetMathMode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  cublasSetWorkspace(handle, Ctx(ctx).workspace, 1);
  const float one = 1, zero = 0;
  std::vector<float> x(64, 1);
  const auto product = [&](int64_t lda, int64_t ldb, int64_t ldc, cublasOperation_t ta) {
    return cublasGemmStridedBatchedEx_64(handle, ta, CUBLAS_OP_N, 2, 3, 4, &one, x.data(),
                                         standin::CUDA_R_32F, lda, 0, x.data(), standin::CUDA_R_32F, ldb, 0,
                                         &zero, x.data() + 32, standin::CUDA_R_32F, ldc, 0, 1,
                                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  };
  EXPECT_EQ(product(2, 4, 2, CUBLAS_OP_N), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product(4, 4, 2, CUBLAS_OP_T), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product(1, 4, 2, CUBLAS_OP_N), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(product(3, 4, 2, CUBLAS_OP_T), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(product(2, 3, 2, CUBLAS_OP_N), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(product(2, 4, 1, CUBLAS_OP_N), CUBLAS_STATUS_INVALID_VALUE);
}

// A handle is of one GPU, and serves one thread at a time.
TEST_F(L03_OnStandins, CublasHasAHandleForEachGpuAndThread) {
  const Buffer a(DType::F32, {3}), b(DType::F32, {5});
  const auto multiply = [&] {
    Buffer c = Buffer::zeros(DType::F32, 1);
    TestCtx ctx;
    table().matmul(ctx, {.M = 1, .N = 1, .K = 1, .lda = 1, .ldb = 1, .ldc = 1}, a.in(), b.in(),
                   c.out(Write::Set));
    EXPECT_EQ(c.values()[0], 15);
  };
  multiply();
  const int64_t handles = machine.cublas_handles;
  multiply();
  EXPECT_EQ(machine.cublas_handles, handles) << "made once";
  machine.gpu = 1;
  multiply();
  EXPECT_EQ(machine.cublas_handles, handles + 1);
  std::thread(multiply).join();
  EXPECT_EQ(machine.cublas_handles, handles + 2);
}

TEST_F(L03_OnStandins, CublasWalksTheLongerOfTwoBatches) {
  const Buffer a = Buffer::zeros(DType::F32, 15);
  Buffer c = Buffer::zeros(DType::F32, 15);
  TestCtx ctx;
  MatmulShape s{.M = 1, .N = 1, .K = 1, .lda = 1, .ldb = 1, .ldc = 1};
  for (const bool outer : {false, true}) {
    s.batch[outer] = {3, 1, 1, 1}, s.batch[!outer] = {5, 3, 3, 3};
    machine.cublas_products = 0;
    table().matmul(ctx, s, a.in(), a.in(), c.out(Write::Set));
    EXPECT_EQ(machine.cublas_products, 3);
  }
}

TEST_F(L03_OnStandins, WithoutAGpuIsAnErrorThatDoesNotStay) {
  machine.gpu = -1;
  const Buffer a(DType::F32, {3});
  Buffer c = Buffer::zeros(DType::F32, 1);
  TestCtx ctx;
  const MatmulShape s{.M = 1, .N = 1, .K = 1, .lda = 1, .ldb = 1, .ldc = 1};
  EXPECT_THROW(table().matmul(ctx, s, a.in(), a.in(), c.out(Write::Set)), Error);
  EXPECT_EQ(standin::cudaGetLastError(), standin::cudaSuccess) << "the next that asks would be blamed for it";
  EXPECT_THROW(attend(DType::BF16, shape), Error);
  EXPECT_EQ(standin::cudaGetLastError(), standin::cudaSuccess) << "the next that asks would be blamed for it";
}

TEST_F(L03_OnStandins, CudnnIsUsedFromTheVersionOnThatHasNoKnownFaults) {
  for (const size_t version : {90100, 90800, 91001, 91500, 91501, 91900, 100000}) {
    machine.cudnn_version = version;
    const int64_t executions = machine.cudnn_executions;
    attend(DType::BF16, shape);
    EXPECT_EQ(machine.cudnn_executions - executions, version >= 91501 ? 2 : 0) << version;
    EXPECT_EQ(attention_text().find("known faults") != std::string::npos, version < 91501)
        << attention_text();
  }
}

TEST_F(L03_OnStandins, WhatCudnnHasNothingForIsLeftToOurKernels) {
  machine.refusal = standin::CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
  for (const bool silently : {false, true}) {
    machine.silently = silently;
    const int64_t T = silently ? 24 : 32;  // a shape each: plans are kept
    EXPECT_NE(attend(DType::BF16, packed(1, 1, T, 8, Mask::Causal)).y[0], 0);
    EXPECT_EQ(machine.cudnn_executions, 0);
  }
}

TEST_F(L03_OnStandins, WhatCudnnCannotDoIsLeftToOurKernels) {
  AttentionShape dropping = shape;
  dropping.dropout = 0.5f;
  attend(DType::F32, shape);
  attend(DType::BF16, dropping);
  attend(DType::BF16, packed(1, 2, 16, 4, Mask::Causal));
  EXPECT_EQ(machine.cudnn_executions, 0) << "fp32, dropout, heads of 4 dimensions";
  turn.alignment = Alignment::None;
  attend(DType::BF16, shape);
  EXPECT_EQ(machine.cudnn_executions, 0) << "unaligned";
  turn.alignment = Alignment::Full;

  const Buffer x = Buffer::random(DType::BF16, 16 * 16, 1);
  Buffer y = Buffer::zeros(DType::BF16, 16 * 16), lse = Buffer::zeros(DType::F32, 2 * 16);
  TestCtx ctx;
  AttentionShape s = shape;
  s.qkv = s.y;
  const auto forward = [&](Write w) {
    table().attention_flash_fwd(ctx, s, x.in(), x.in(), x.in(), y.out(w), lse.out(Write::Set));
    return y.values();
  };
  const std::vector<double> once = forward(Write::Set), twice = forward(Write::Add);
  EXPECT_EQ(machine.cudnn_executions, 1) << "Set, and not Add";
  for (size_t i = 0; i < once.size(); ++i) ASSERT_NEAR(twice[i], 2 * once[i], 0.04) << "element " << i;
}

// cuDNN 9.19 without libcuda proposes nothing for a graph that it knows, and succeeds.
TEST_F(L03_OnStandins, AMissingLibraryIsAnError) {
  using namespace standin;
  for (const cudnnStatus_t status :
       {CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER, CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART,
        CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
        CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE, CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED})
    for (const bool silently : {false, true}) {
      if (silently && status == CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED) continue;
      machine.refusal = status, machine.silently = silently;
      EXPECT_THROW(attend(DType::BF16, packed(1, 1, 40, 8, Mask::Causal)), Error) << status << silently;
    }
}

// Backward's workspace holds a matrix of T x T of each head. Where those of all heads are too much, a call
// becomes several executions, and the numbers stay.
TEST_F(L03_OnStandins, BackwardIsCutWhereTheWorkspaceIsTooSmall) {
  machine.bytes_a_score = kWorkspaceBytes / (2 * 48 * 48);  // two heads of one sample fit
  expect_as_fp64(DType::BF16, packed(2, 4, 48, 8, Mask::Causal));
  EXPECT_EQ(machine.cudnn_executions, 1 + 4);
}

}  // namespace
}  // namespace gradus
