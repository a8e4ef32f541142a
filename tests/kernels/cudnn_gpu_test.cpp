// Tests that cuDNN is used where it should be: every other test would also pass with only our own kernels.
#include "tests/kernels/cudnn_shapes.h"
#include "tests/kernels/kernel_testing.h"

namespace gradus {
namespace {

// The second shape is too large for the workspace.
ON_EVERY_DEVICE(L15_CudnnOnGpu);
TEST_P(L15_CudnnOnGpu, Computes) {
  if (!on_cuda() || turn.alignment == Alignment::None)
    GTEST_SKIP() << "cuDNN needs a GPU, and aligned pointers";
  if (!cuda::cudnn_problem().empty()) GTEST_SKIP() << cuda::cudnn_problem();
  for (const AttentionShape& s :
       {packed(1, 2, 1, 128, 64, Mask::Causal), packed(4, 8, 8, 1024, 64, Mask::Causal)}) {
    const Buffer qkv = Buffer::zeros(DType::BF16, s.B * s.qkv.batch),
                 dy = Buffer::zeros(DType::BF16, s.B * s.y.batch);
    Buffer y = Buffer::zeros(DType::BF16, s.B * s.y.batch), lse = Buffer::zeros(DType::F32, s.B * s.H * s.T),
           d = Buffer::zeros(DType::BF16, s.B * s.qkv.batch);
    TestCtx ctx;
    const int64_t k = s.H * s.D, v = k + s.KV * s.D;
    const Out dq = d.out(Write::Set);
    EXPECT_TRUE(cuda::cudnn_attention_fwd(ctx, s, qkv.in(), qkv.in().from(k), qkv.in().from(v),
                                          y.out(Write::Set), lse.out(Write::Set)));
    EXPECT_TRUE(cuda::cudnn_attention_bwd(ctx, s, qkv.in(), qkv.in().from(k), qkv.in().from(v), y.in(),
                                          lse.in(), dy.in(), dq, dq.from(k), dq.from(v)));
    wait_for_kernels();
  }
}

}  // namespace
}  // namespace gradus
