// The CPU's attention and its workspace, of which each thread has a share.
#include "kernels/cpu/attention.h"
#include "tests/kernels/kernel_contract.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// Two heads of queries share a head of keys and values. All heads are packed.
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

// The workspace has 5 shares for 12 threads.
TEST(L15_AttentionOnCpu, AsManyThreadsAttendAsTheWorkspaceHasShares) {
  constexpr int64_t kShares = 5, kBytes = kWorkspaceBytes / kShares, kTasks = 40;
  TestCtx own;
  const Ctx ctx = own;
  const OpenMpThreads threads(12);
  int most_threads = 0;
  std::vector<int64_t> offset(kTasks, -1);
  cpu::for_tasks(ctx, "attention", shape_of(1, 1, 1), kTasks, kBytes, [&](int64_t i, void* share) {
    if (i == 0) most_threads = omp_get_num_threads();
    offset[size_t(i)] = static_cast<char*>(share) - static_cast<char*>(ctx.workspace);
  });
  EXPECT_EQ(most_threads, kShares);
  for (const int64_t each : offset) {
    EXPECT_EQ(each % kBytes, 0) << "each task has one share";
    EXPECT_TRUE(each >= 0 && each + kBytes <= kWorkspaceBytes) << "share at byte " << each;
  }
}

TEST(L15_AttentionOnCpu, AnErrorOfATaskIsThatOfTheCall) {
  TestCtx own;
  const Ctx ctx = own;
  const OpenMpThreads threads(3);
  for (const int64_t bytes : {kWorkspaceBytes / 3, kWorkspaceBytes})
    expect_refused("task 4 fails", [&] {
      cpu::for_tasks(ctx, "attention", shape_of(1, 1, 1), 9, bytes,
                     [](int64_t i, void*) { check(i != 4, "task ", i, " fails"); });
    });
}

}  // namespace
}  // namespace gradus
