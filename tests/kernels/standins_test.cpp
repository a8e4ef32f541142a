// The code around cuBLAS in situations that only a stand-in can produce.
#include <thread>

#include "tests/standin/cublas_v2.h"
#include "tests/standin/turn.h"

namespace gradus {
namespace {

class L03_OnStandins : public ::testing::Test {
 protected:
  standin::Machine& machine = standin::machine() = {};
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

// A handle belongs to one GPU, and serves one thread at a time.
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
  EXPECT_EQ(machine.cublas_handles, handles) << "a handle is created once";
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
  EXPECT_EQ(standin::cudaGetLastError(), standin::cudaSuccess) << "the next call would report the error";
}

}  // namespace
}  // namespace gradus
