// The CPU's attention and its workspace, of which each thread has a share.
#include "tests/kernels/kernel_contract.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// Two heads of queries share each of keys and values. All are packed.
AttentionShape shape_of(int64_t B, int64_t T, int64_t D) {
  return {.B = B,
          .H = 2,
          .KV = 1,
          .T = T,
          .D = D,
          .qkv = {4 * T * D, D, 4 * D},
          .y = {2 * T * D, D, 2 * D},
          .scale = 1 / std::sqrt(float(D))};
}

TEST(L15_AttentionOnCpu, WhatTheWorkspaceCannotHoldIsRefused) {
  const CBuf x{nullptr, DType::F32};
  const Out none{nullptr, DType::F32};
  const AttentionShape wide = shape_of(0, 3, 30'000), longest = shape_of(0, 100'000, 3);
  const Backend& b = cpu_backend();
  TestCtx ctx;
  expect_refused("attention_plain: sequences of 100000",
                 [&] { b.attention_plain_fwd(ctx, longest, x, x, x, none, none); });
  expect_refused("heads of 30000 need", [&] { b.attention_flash_fwd(ctx, wide, x, x, x, none, none); });
  expect_refused("attention_flash_bwd: sequences of 100000",
                 [&] { b.attention_flash_bwd(ctx, longest, x, x, x, x, x, x, none, none, none); });
}

// Heads so wide that the workspace has shares for some of 12 threads only, and tasks for all of them.
TEST(L15_AttentionOnCpu, MoreThreadsThanSharesKeepToTheWorkspace) {
  const AttentionShape s = shape_of(48, 20, 500);
  const Buffer qkv = Buffer::random(DType::F32, s.B * s.qkv.batch, 1);
  Buffer y = Buffer::zeros(DType::F32, s.B * s.y.batch);
  constexpr char kUntouched = 0x5A;
  std::vector<char> memory(4 * kWorkspaceBytes, kUntouched);
  TestCtx own;
  Ctx ctx = own;
  ctx.workspace = memory.data() + (-reinterpret_cast<uintptr_t>(memory.data())) % TestCtx::kAlignment;
  const OpenMpThreads threads(12);
  cpu_backend().attention_flash_fwd(ctx, s, qkv.in(), qkv.in().from(2 * s.D), qkv.in().from(3 * s.D),
                                    y.out(Write::Set), Out{nullptr, DType::F32});
  const char* const end = static_cast<char*>(ctx.workspace) + kWorkspaceBytes;
  EXPECT_TRUE(std::all_of(end, static_cast<const char*>(memory.data() + memory.size()),
                          [](char c) { return c == kUntouched; }));
}

}  // namespace
}  // namespace gradus
