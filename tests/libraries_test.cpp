// The code around cuBLAS and cuDNN: on the stand-ins for them everywhere, on the libraries where there is a
// GPU.
#include <iostream>
#include <thread>

#include "kernels/cuda/attention_calls.h"
#include "src/data/dummy.h"
#include "src/nn/transformer.h"
#include "src/optim/optimizer.h"
#include "src/train/report.h"
#include "tests/standin/cublas_v2.h"
#include "tests/standin/turn.h"

namespace gradus {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::vector<Turn> turns_of_libraries() {
  std::vector<Turn> all{on_standins()};
  for (const Turn& t : turns())
    if (t.alignment == Alignment::Full) all.push_back(t);
  return all;
}
class L03_Libraries : public OnEveryDevice {
 protected:
  void SetUp() override {
    OnEveryDevice::SetUp();
    standin::machine() = {};
    before_ = attention_calls.by_cudnn;
  }
  int64_t calls_of_cudnn() const { return attention_calls.by_cudnn - before_; }
  // A build without cuDNN, or with one that is too old, has nothing to test here, nor has a GPU before
  // Ampere.
  static bool cudnn_is_there() {
    return !on_cuda() || (attention_calls.cudnn_version >= kOldestCudnn && cuda_facts().sm >= 80);
  }

 private:
  int64_t before_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Devices, L03_Libraries, testing::ValuesIn(turns_of_libraries()),
                         [](const auto& info) { return std::string(info.param.name); });

AttentionShape packed(int64_t B, int64_t H, int64_t T, int64_t D, Mask mask) {
  const int64_t C = H * D;
  return {.B = B,
          .H = H,
          .T = T,
          .D = D,
          .qkv = {T * 3 * C, D, 3 * C},
          .y = {T * C, D, C},
          .scale = 1 / std::sqrt(float(D)),
          .mask = mask};
}

struct Numbers {
  std::vector<double> y, lse, dqkv;
};
Numbers attend(const Backend& k, DType t, const AttentionShape& s, const Buffer& x, const Buffer& dy) {
  const int64_t n = s.B * s.T * s.H * s.D, C = s.H * s.D * size_of(t);
  const DType stats = t == DType::F64 ? t : DType::F32;
  Buffer y = Buffer::zeros(t, n), lse = Buffer::zeros(stats, s.B * s.H * s.T), dx = Buffer::zeros(t, 3 * n);
  const auto in = [&](int64_t i) { return CBuf{x.in().as<char>() + i * C, t}; };
  const auto out = [&](int64_t i) { return Out{dx.out(Write::Set).as<char>() + i * C, t, Write::Set}; };
  TestCtx ctx(cost::attention_flash_bwd(s, t));
  k.attention_flash_fwd(ctx, s, in(0), in(1), in(2), y.out(Write::Set), lse.out(Write::Set));
  k.attention_flash_bwd(ctx, s, in(0), in(1), in(2), y.in(), lse.in(), dy.in(), out(0), out(1), out(2));
  return {y.values(), lse.values(), dx.values()};
}
Numbers attend(DType t, const AttentionShape& s) {
  const int64_t n = s.B * s.T * s.H * s.D;
  return attend(table(), t, s, Buffer::random(t, 3 * n, 1), Buffer::random(t, n, 2));
}

// The bounds are those of attention_test.cpp, where they are explained.
void expect_as_fp64(DType t, const AttentionShape& s) {
  const int64_t n = s.B * s.T * s.H * s.D;
  const Buffer x = Buffer::random(t, 3 * n, 1), dy = Buffer::random(t, n, 2);
  const Numbers got = attend(table(), t, s, x, dy);
  const Numbers exact =
      attend(cpu_backend(), DType::F64, s, Buffer(DType::F64, x.values()), Buffer(DType::F64, dy.values()));
  const double eps = 16 * epsilon_of(t) + 64 * double(s.D) * epsilon_of(DType::F32);
  const auto within = [](double bound) { return [=](int64_t) { return bound; }; };
  const std::string op = std::string("attention_flash ") + name_of(t) + " T " + std::to_string(s.T) + " D " +
                         std::to_string(s.D);
  expect_close(op + " lse", got.lse, exact.lse, within(eps));
  expect_close(op + " y", got.y, exact.y, within(4 * eps));
  expect_close(op + " dqkv", got.dqkv, exact.dqkv, within(32 * eps));
}

TEST_P(L03_Libraries, CudnnsAttentionIsTheFormula) {
  int64_t expected = 0;
  for (const DType t : {DType::BF16, DType::F16})
    for (const int64_t T : {64, 192, 1024})
      for (const int64_t D : {64, 128})
        for (const Mask mask : {Mask::Causal, Mask::None}) {
          if (T == 1024 && (mask == Mask::None || kSanitized)) continue;  // the same graphs, and minutes
          expect_as_fp64(t, packed(T == 1024 ? 1 : 2, T == 1024 ? 1 : 2, T, D, mask));
          expected += 2;
        }
  if (!cudnn_is_there()) GTEST_SKIP() << attention_text();
  EXPECT_EQ(calls_of_cudnn(), expected) << "a call was left to our own kernels";
}

// One attention in 16 bits, two codes for it, in a whole model.
std::vector<double> losses_of_training(const Precision& precision, const Backend* table) {
  Context context(table && on_cuda() ? "cuda" : "cpu", 1);
  if (table && !on_cuda()) context.device.use(*table);
  Transformer model({.vocab = 65,
                     .context = 64,
                     .layers = 2,
                     .heads = 2,
                     .channels = 128,
                     .precision = precision,
                     .attention = attention_flash});
  model.initialize(1);
  AdamW optimizer(model.parameters);
  std::vector<double> losses;
  for (uint64_t step = 0; step < 4; ++step) {
    const DummyBatch batch = dummy_batch(model.config, 2, model.config.context, step / 3);
    Tape tape;
    const Tensor loss = batch.loss(model);
    losses.push_back(item(loss));
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.step(1e-3);
  }
  return losses;
}
TEST_P(L03_Libraries, AModelInSixteenBitsTrainsWithCudnnsAttention) {
  Backend mine = cpu_backend();  // all but attention
  mine.attention_flash_fwd = table().attention_flash_fwd;
  mine.attention_flash_bwd = table().attention_flash_bwd;
  for (const Precision& precision : {mixed(DType::BF16), uniform(DType::BF16), mixed(DType::F16)}) {
    const std::vector<double> cpu = losses_of_training(precision, nullptr),
                              got = losses_of_training(precision, &mine);
    // Logits near 4 are numbers of T; a few may be rounded the other way in each step.
    for (size_t i = 0; i < cpu.size(); ++i)
      EXPECT_NEAR(got[i], cpu[i], 16 * epsilon_of(precision.value)) << "step " << i;
    EXPECT_LT(got[2], got[0]);
  }
  if (!cudnn_is_there()) GTEST_SKIP() << attention_text();
  EXPECT_EQ(calls_of_cudnn(), 3 * 4 * 2 * 2) << "recipes, steps, layers, forward and backward";
}

TEST_P(L03_Libraries, ARunSaysWhichAttentionItUsed) {
  attend(DType::F32, packed(1, 1, 8, 8, Mask::Causal));
  std::ostringstream printed;
  std::streambuf* const terminal = std::cout.rdbuf(printed.rdbuf());
  const Context context("cpu", 1);
  Report("a lesson", current().device).finish("");
  std::cout.rdbuf(terminal);
  const std::string text = attention_text();
  EXPECT_NE(printed.str().find(text + "\n"), std::string::npos) << printed.str();
  EXPECT_NE(text.find(std::to_string(attention_calls.by_cudnn) + " calls by cuDNN"), std::string::npos)
      << text;
  EXPECT_NE(text.find(std::to_string(attention_calls.by_own) + " by our own kernels"), std::string::npos);
}

// What only a stand-in can be made to do.
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
