// A buffer of the wrong dtype is an error with the same message on every device (kernels/checks.h).
#include "tests/kernels/kernel_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L03_Refusals);

// The dtypes among the arguments of a call.
template <class T>
void add_dtypes(T&, std::vector<DType*>&) {}
void add_dtypes(CBuf& x, std::vector<DType*>& dtypes) { dtypes.push_back(&x.t); }
void add_dtypes(Out& y, std::vector<DType*>& dtypes) { dtypes.push_back(&y.t); }

template <class... P>
using Entry = void (*Backend::*)(const Ctx&, P...);

// Gives one buffer after the other a wrong dtype: fp16 if the others are fp32 (ids: int32); or, if some are
// bf16, fp32 instead of bf16 and bf16 instead of all others. `refused` has a letter for each buffer: x if the
// dtype must be rejected, . if it is allowed. There are no elements, so nothing is computed.
template <class... P>
void expect_refused(const std::string& refused, Entry<P...> entry,
                    std::type_identity_t<std::decay_t<P>>... arguments) {
  std::vector<DType*> dtypes;
  (add_dtypes(arguments, dtypes), ...);
  ASSERT_EQ(dtypes.size(), refused.size()) << refused;
  const bool mixed =
      std::any_of(dtypes.begin(), dtypes.end(), [](const DType* t) { return *t == DType::BF16; });
  TestCtx ctx(Cost{.scratch = 4096});
  const auto refusal_of = [&](const Backend& b) {
    return refusal([&] {
      (b.*entry)(ctx, arguments...);
      wait_for_kernels();
    });
  };
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const DType right = *dtypes[i];
    *dtypes[i] = !mixed ? DType::F16 : right == DType::BF16 ? DType::F32 : DType::BF16;
    const std::string text = refusal_of(table());
    EXPECT_EQ(text.empty(), refused[i] == '.') << "buffer " << i << " of " << refused << ": " << text;
    EXPECT_EQ(text, refusal_of(cpu_backend())) << "buffer " << i << " of " << refused;
    *dtypes[i] = right;
  }
}

// Calls each entry with buffers of T and with fp32 statistics (layernorm's, the log-sum-exp).
void expect_refusals(DType T) {
  using B = Backend;
  const bool sixteen = T != DType::F32;
  Buffer any = Buffer::zeros(DType::F32, 8);
  const CBuf f = any.in(), x{f.p, T}, ids{f.p, DType::I32};
  const Out fp32 = any.out(Write::Set), y{fp32.p, T, Write::Set};
  const RowShape none{0, 2};
  const AttentionShape heads{0, 1, 1, 2, 2, {8, 4, 4}, {8, 4, 4}, 1};
  expect_refused("xxx", &B::add, 0, x, x, y);
  expect_refused("xx", &B::scale, 0, x, y, 2.0f);
  for (const auto fwd : {&B::gelu_fwd, &B::gelu_erf_fwd, &B::tanh_fwd}) expect_refused("xx", fwd, 0, x, y);
  for (const auto bwd : {&B::gelu_bwd, &B::gelu_erf_bwd, &B::tanh_bwd})
    expect_refused("xxx", bwd, 0, x, x, y);
  expect_refused("xx", &B::dropout, none, x, y, 0.5f, RandomKey{});
  expect_refused("xxx", &B::bias_fwd, none, x, x, y);
  expect_refused(sixteen ? "x." : ".x", &B::bias_bwd, none, x, y);
  expect_refused("xxxxx", &B::layernorm_fwd, none, x, x, x, y, fp32, 1e-5f);
  expect_refused(sixteen ? "xxxxx.." : "xxxxxxx", &B::layernorm_bwd, none, x, x, f, x, y, y, y);
  expect_refused("xx", &B::softmax_fwd, none, x, y);
  expect_refused("xxx", &B::softmax_bwd, none, x, x, y);
  expect_refused(".xxxx", &B::cross_entropy_fwd, none, x, ids, f, fp32, fp32);
  expect_refused("xxxx.", &B::cross_entropy_bwd_inplace, none, ids, f, f, f, y);
  expect_refused("xxx", &B::embedding_fwd, none, 0, x, ids, y);
  expect_refused(sixteen ? "xx." : "x.x", &B::embedding_bwd, none, 0, ids, x, y);
  expect_refused(sixteen ? "xx." : "xxx", &B::matmul, {.M = 0, .N = 0, .K = 0, .lda = 1, .ldb = 1, .ldc = 1},
                 x, x, y);
  expect_refused("xxxxx", &B::attention_plain_fwd, heads, x, x, x, y, y);
  expect_refused("xxxxxxxx", &B::attention_plain_bwd, heads, x, x, x, x, x, y, y, y);
  expect_refused("xxxxx", &B::attention_flash_fwd, heads, x, x, x, y, fp32);
  expect_refused("xxxxxxxxx", &B::attention_flash_bwd, heads, x, x, x, x, f, x, y, y, y);
  expect_refused("xx", &B::rotary, {.B = 0, .T = 1, .H = 1, .KV = 1, .D = 2, .dims = 2}, x, y);
}

// The same for fused kernels.
void expect_fused_refusals(DType T) {
  using B = Backend;
  const bool sixteen = T != DType::F32;
  Buffer any = Buffer::zeros(DType::F32, 8);
  const CBuf f = any.in(), x{f.p, T}, ids{f.p, DType::I32};
  const Out fp32 = any.out(Write::Set), y{fp32.p, T, Write::Set};
  const RowShape none{0, 2};
  expect_refused("xx.", &B::scale_by_ratio_inplace, 0, f, f, y);
  expect_refused("x.", &B::count_targets, 0, ids, fp32);
  expect_refused("xxx", &B::bias_gelu_fwd, none, x, x, y);
  expect_refused(sixteen ? "xxxx." : "xxxxx", &B::bias_gelu_bwd, none, x, x, x, y, y);
  expect_refused("xxxxxxx", &B::add_layernorm_fwd, none, x, x, x, x, y, y, fp32, 1e-5f);
  expect_refused(sixteen ? "xxxxxx.." : "xxxxxxxx", &B::add_layernorm_bwd, none, x, x, f, x, x, y, y, y);
}

TEST_P(L03_Refusals, AreTheSameSentencesOnEveryDevice) { expect_refusals(DType::F32); }
TEST_P(L03_Refusals, BesideSixteenBitsFp32IsForWhatTheContractSays) { expect_refusals(DType::BF16); }

ON_EVERY_DEVICE(L16_Refusals);

TEST_P(L16_Refusals, OfFusedKernelsAreTheSameSentencesOnEveryDevice) { expect_fused_refusals(DType::F32); }
TEST_P(L16_Refusals, OfFusedKernelsIn16BitsAllowFp32ForParametersGradients) {
  expect_fused_refusals(DType::BF16);
}

ON_EVERY_DEVICE(L21_Refusals);

void expect_llama_refusals(DType T) {
  using B = Backend;
  const bool sixteen = T != DType::F32;
  Buffer any = Buffer::zeros(DType::F32, 8);
  const CBuf f = any.in(), x{f.p, T};
  const Out fp32 = any.out(Write::Set), y{fp32.p, T, Write::Set};
  const RowShape none{0, 2};
  expect_refused("xxxx", &B::rmsnorm_fwd, none, x, x, y, fp32, 1e-5f);
  expect_refused(sixteen ? "xxxxx." : "xxxxxx", &B::rmsnorm_bwd, none, x, x, f, x, y, y);
  expect_refused("xx", &B::swiglu_fwd, none, x, y);
  expect_refused("xxx", &B::swiglu_bwd, none, x, x, y);
}

TEST_P(L21_Refusals, OfLlamasKernelsAreTheSameSentencesOnEveryDevice) { expect_llama_refusals(DType::F32); }
TEST_P(L21_Refusals, OfLlamasKernelsIn16BitsAllowFp32ForParametersGradients) {
  expect_llama_refusals(DType::BF16);
}

ON_EVERY_DEVICE(L19_Refusals);

// Kernels of a sharded vocabulary, and of attention to blocks of keys. Calls without a buffer of T are the
// same for each T.
void expect_refusals_of_parts(DType T) {
  using B = Backend;
  Buffer any = Buffer::zeros(DType::F32, 8);
  const CBuf f = any.in(), x{f.p, T}, ids{f.p, DType::I32};
  const Out fp32 = any.out(Write::Set), local{fp32.p, DType::I32, Write::Set};
  const AttentionShape heads{0, 1, 1, 2, 2, {8, 4, 4}, {8, 4, 4}, 1};
  expect_refused(".xxxx", &B::cross_entropy_sums, {0, 2}, x, ids, f, f, fp32);
  expect_refused("xxxxxx", &B::cross_entropy_of_sums, 0, ids, f, f, f, fp32, fp32);
  expect_refused("xx", &B::local_ids, 0, 5, 0, 5, ids, local);
  expect_refused(".xxx", &B::attention_merge_inplace, heads, x, f, fp32, fp32);
}

TEST_P(L19_Refusals, OfKernelsOfPartsAreTheSameSentencesOnEveryDevice) {
  expect_refusals_of_parts(DType::F32);
}
TEST_P(L19_Refusals, OfKernelsOfPartsIn16BitsKeepStatisticsInFp32) { expect_refusals_of_parts(DType::BF16); }

void expect_refusals_of_experts(DType T) {
  using B = Backend;
  Buffer any = Buffer::zeros(DType::F32, 8);
  const CBuf f = any.in(), x{f.p, T}, ids{f.p, DType::I32};
  const Out fp32 = any.out(Write::Set), y{fp32.p, T, Write::Set}, out_ids{fp32.p, DType::I32, Write::Set};
  const ExpertShape none{0, 2, 2, 1, 1};
  expect_refused("xxx", &B::choose_experts_fwd, none, x, out_ids, y);
  expect_refused("xxxx", &B::choose_experts_bwd, none, ids, x, x, y);
  expect_refused("xxx", &B::place_tokens, none, ids, out_ids, out_ids);
  expect_refused("xxxx", &B::combine_experts_fwd, none, 2, x, ids, x, y);
  expect_refused("xxxxxxx", &B::combine_experts_bwd, none, 2, x, ids, ids, x, x, y, y);
  expect_refused(".xxx", &B::balance_loss_fwd, none, x, ids, f, fp32, 1.0f);
  expect_refused("xxxxx", &B::balance_loss_bwd, none, x, ids, f, f, y, 1.0f);
}

TEST_P(L21_Refusals, OfAMixtureOfExpertsAreTheSameSentencesOnEveryDevice) {
  expect_refusals_of_experts(DType::F32);
}
TEST_P(L21_Refusals, OfAMixtureOfExpertsIn16BitsKeepStatisticsInFp32) {
  expect_refusals_of_experts(DType::BF16);
}

TEST_P(L16_Refusals, TheSumThatIsNormalizedMustBeThereAndBeReplaced) {
  Buffer any = Buffer::zeros(DType::F32, 8);
  const CBuf x = any.in();
  const Out y = any.out(Write::Set);
  TestCtx ctx;
  for (const Out sum : {any.out(Write::Add), Out{nullptr, DType::F32, Write::Set}})
    gradus::expect_refused(
        "add_layernorm_fwd: `sum` is the input of the norm, so it must be given, with Write::Set", [&] {
          table().add_layernorm_fwd(ctx, {0, 2}, x, x, x, x, sum, y, y, 1e-5f);
        });
}

// Every buffer of an update in every dtype, where T is bf16: dtypes other than T and fp32 are rejected, and
// so is a master copy that is not fp32. The value's dtype decides which dtypes the other buffers may have.
TEST_P(L03_Refusals, AnUpdateTakesTheDtypesOfTheContractOnly) {
  constexpr DType kTypes[] = {DType::F64, DType::F32, DType::BF16, DType::F16,
                              DType::I64, DType::I32, DType::I8,   DType::U8};
  Buffer any = Buffer::zeros(DType::F32, 8);
  TestCtx ctx;
  ctx.scalars().updates = 1;
  for (int which = 0; which < 5; ++which)
    for (const DType t : kTypes) {
      const auto out = [&](int i, DType right) {
        return Out{any.out(Write::Set).p, which == i ? t : right, Write::Set};
      };
      const Out grad = out(1, DType::F32);
      const ParamUpdate u{0,
                          out(0, DType::BF16),
                          {grad.p, grad.t},
                          out(2, DType::F32),
                          out(3, DType::BF16),
                          out(4, DType::F32),
                          false};
      const bool bf16_or_fp32 = t == DType::BF16 || t == DType::F32;
      const bool right = which == 4 ? t == DType::F32 : which == 0 ? t == DType::BF16 : bf16_or_fp32;
      const std::string what = std::string(name_of(t)) + " as buffer " + std::to_string(which);
      const auto adamw = [&] { table().adamw(ctx, {1, &u}, {}); };
      const auto sgd = [&] { table().sgd(ctx, {1, &u}, {}); };
      if (right) {
        EXPECT_NO_THROW(adamw()) << what;
        EXPECT_NO_THROW(sgd()) << what;
      } else {
        EXPECT_THROW(adamw(), Error) << what;
        EXPECT_THROW(sgd(), Error) << what;
      }
    }
}

TEST_P(L03_Refusals, WhatIsFilledIsFloats) {
  Buffer any = Buffer::zeros(DType::F32, 4);
  TestCtx ctx;
  EXPECT_THROW(table().fill(ctx, 4, {any.out(Write::Set).p, DType::I32}, 0), Error);
}

TEST_P(L03_Refusals, AProbabilityIsFrom0To1) {
  Buffer x = Buffer::random(DType::F32, 4, 1), y = Buffer::zeros(DType::F32, 4);
  TestCtx ctx;
  for (const float p : {-0.1f, 1.1f, NAN})
    EXPECT_THROW(table().dropout(ctx, {2, 2}, x.in(), y.out(Write::Set), p, {}), Error) << p;
}

TEST_P(L03_Refusals, AdamWBeginsWithUpdate1) {
  if (on_cuda()) GTEST_SKIP() << "a GPU prints the message and then does no more work for this process";
  Buffer x = Buffer::random(DType::F32, 4, 1);
  const Out out = x.out(Write::Set);
  const ParamUpdate u{1, out, x.in(), out, out, {}, false};
  TestCtx ctx;
  ctx.scalars().updates = 0;
  EXPECT_THROW(table().adamw(ctx, {1, &u}, {}), Error);
}

}  // namespace
}  // namespace gradus
