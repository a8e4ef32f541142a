// A buffer of the wrong dtype is refused by a sentence, the same on every device (kernels/checks.h).
#include "tests/kernel_testing.h"

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

// Makes one buffer after the other fp16 where the others are fp32 (ids: int32). `refused` has a letter for
// each: x where that must be refused, . where it is allowed. There are no elements, so nothing is computed.
template <class... P>
void expect_refused(const std::string& refused, Entry<P...> entry,
                    std::type_identity_t<std::decay_t<P>>... arguments) {
  std::vector<DType*> dtypes;
  (add_dtypes(arguments, dtypes), ...);
  ASSERT_EQ(dtypes.size(), refused.size()) << refused;
  TestCtx ctx(Cost{.scratch = 4096});
  const auto refusal = [&](const Backend& b) -> std::string {
    try {
      (b.*entry)(ctx, arguments...);
      wait_for_kernels();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  for (size_t i = 0; i < dtypes.size(); ++i) {
    const DType right = std::exchange(*dtypes[i], DType::F16);
    const std::string text = refusal(table());
    EXPECT_EQ(text.empty(), refused[i] == '.') << "buffer " << i << " of " << refused << ": " << text;
    EXPECT_EQ(text, refusal(cpu_backend())) << "buffer " << i << " of " << refused;
    *dtypes[i] = right;
  }
}

TEST_P(L03_Refusals, AreTheSameSentencesOnEveryDevice) {
  using B = Backend;
  Buffer any = Buffer::zeros(DType::F32, 8);
  const CBuf x = any.in(), ids{x.p, DType::I32};
  const Out y = any.out(Write::Set);
  const RowShape none{0, 2};
  const AttentionShape heads{0, 1, 2, 2, {8, 4, 4}, {8, 4, 4}, 1};
  expect_refused("xxx", &B::add, 0, x, x, y);
  expect_refused("xx", &B::scale, 0, x, y, 2.0f);
  for (const auto fwd : {&B::gelu_fwd, &B::gelu_erf_fwd, &B::tanh_fwd}) expect_refused("xx", fwd, 0, x, y);
  for (const auto bwd : {&B::gelu_bwd, &B::gelu_erf_bwd, &B::tanh_bwd})
    expect_refused("xxx", bwd, 0, x, x, y);
  expect_refused("xx", &B::dropout, none, x, y, 0.5f, RandomKey{});
  expect_refused("xxx", &B::bias_fwd, none, x, x, y);
  expect_refused(".x", &B::bias_bwd, none, x, y);
  expect_refused("xxxxx", &B::layernorm_fwd, none, x, x, x, y, y, 1e-5f);
  expect_refused("xxxxxxx", &B::layernorm_bwd, none, x, x, x, x, y, y, y);
  expect_refused("xx", &B::softmax_fwd, none, x, y);
  expect_refused("xxx", &B::softmax_bwd, none, x, x, y);
  expect_refused(".xxx", &B::cross_entropy_fwd, none, x, ids, y, y);
  expect_refused("xxx.", &B::cross_entropy_bwd_inplace, none, ids, x, x, y);
  expect_refused("xxx", &B::embedding_fwd, none, 0, x, ids, y);
  expect_refused("x.x", &B::embedding_bwd, none, 0, ids, x, y);
  expect_refused("xxx", &B::matmul, {.M = 0, .N = 0, .K = 0, .lda = 1, .ldb = 1, .ldc = 1}, x, x, y);
  expect_refused("xxxxx", &B::attention_plain_fwd, heads, x, x, x, y, y);
  expect_refused("xxxxxxxx", &B::attention_plain_bwd, heads, x, x, x, x, x, y, y, y);
  expect_refused("xxxxx", &B::attention_flash_fwd, heads, x, x, x, y, y);
  expect_refused("xxxxxxxxx", &B::attention_flash_bwd, heads, x, x, x, x, x, x, y, y, y);
  expect_refused("xx", &B::rotary, {.B = 0, .T = 1, .H = 1, .D = 2, .dims = 2}, x, y);
}

}  // namespace
}  // namespace gradus
