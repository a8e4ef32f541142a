// The tensors that attention_flash saves for backward, and those that it allocates: their bytes grow with T,
// and none has T x T elements.
#include <gtest/gtest.h>

#include <string_view>

#include "tests/devices.h"
#include "tests/ops/attention_testing.h"

namespace gradus {
namespace {

std::vector<const char*> devices_and_meta() {
  std::vector<const char*> devices = devices_with_data();
  devices.push_back("meta");
  return devices;
}
struct L15_FlashMemory : ::testing::TestWithParam<const char*> {
  std::vector<DType> dtypes() const {
    const std::string_view device = GetParam();
    if (device == "cpu" || device == "meta") return {DType::F64, DType::F32, DType::BF16, DType::F16};
    return {DType::F32, DType::BF16, DType::F16};
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, L15_FlashMemory, ::testing::ValuesIn(devices_and_meta()),
                         [](const auto& info) { return std::string(info.param); });

const Heads kHeads[] = {Heads(8, 8), Heads(8, 4), Heads(8, 1)};  // 1, 2 and 8 query heads per key head

// One forward and one backward on a separate device. Dropout saves nothing per weight, either.
struct Memory {
  int64_t saved = 0;                  // bytes on the tape
  int64_t forward = 0, backward = 0;  // bytes of the largest allocation in each pass
  Memory(const char* device, DType t, AttentionOp op, const AttentionCase& c, double dropout) {
    Context context(device, 5);
    const auto tensor = [&](const Shape& shape, const char* name) {
      return from_host(context.device, std::vector<double>(shape.numel(), 0.5), shape, t, Kind::Temporary,
                       name);
    };
    scale(tensor({1}, "first"), 1);  // the first kernel allocates the workspace (16 MiB) of all later ones
    Tensor qkv = tensor(c.qkv(), "qkv"), dy = tensor(c.y(), "dy");
    Leaf leaf;
    attach(qkv, leaf, "qkv");
    Allocator& allocator = context.device.allocator();
    allocator.keep_history();
    size_t seen = allocator.history().size();
    const auto largest = [&] {
      int64_t bytes = 0;
      for (; seen < allocator.history().size(); ++seen) {
        const MemoryEvent& event = allocator.history()[seen];
        if (event.action == Action::Alloc) bytes = std::max(bytes, event.requested);
      }
      return bytes;
    };
    Tape tape;
    const Tensor y = op(qkv, c.heads, c.mask, dropout, 0);
    saved = tape.saved_bytes();
    forward = largest();
    tape.backward(y, dy);
    backward = largest();
  }
};

// Bytes of qkv and y in t, and of the log-sum-exp of each query in fp32 (fp64 for fp64).
int64_t saved_by_flash(DType t, const AttentionCase& c) {
  return (c.qkv().numel() + c.y().numel()) * size_of(t) + c.B * c.heads.q * c.T * (t == DType::F64 ? 8 : 4);
}

TEST_P(L15_FlashMemory, WhatFlashSavesIsLinearInTToTheByte) {
  for (const DType t : dtypes())
    for (const Heads& heads : kHeads)
      for (const int64_t T : {1, 13}) {
        const auto saved = [&, t = t](AttentionOp op, int64_t times) {
          return Memory(GetParam(), t, op, {times * T, 6, heads, Mask::Causal, 2}, 0).saved;
        };
        const AttentionCase c{T, 6, heads, Mask::Causal, 2};
        const int64_t once = saved(attention_flash, 1);
        EXPECT_EQ(once, saved_by_flash(t, c)) << name_of(t) << ", " << c;
        EXPECT_EQ(saved(attention_flash, 2), 2 * once) << name_of(t) << ", twice " << c;
        EXPECT_EQ(saved(attention_flash, 3), 3 * once) << name_of(t) << ", three times " << c;
        const int64_t plain = saved(attention_plain, 1), squares = 2 * 8 * T * T * size_of(t);
        EXPECT_EQ(saved(attention_plain, 3), 3 * plain + 6 * squares) << "plain has (3 T)^2 weights, " << c;
      }
}

// Heads have 2 dimensions, so that all other tensors are smaller than the weights of one head.
TEST_P(L15_FlashMemory, FlashAllocatesNothingOfTxTElementsAndPlainDoes) {
  for (const DType t : dtypes())
    for (const Heads& heads : kHeads)
      for (const double dropout : {0.0, 0.25}) {
        const AttentionCase c{64, 2, heads, Mask::Causal, 2};
        const int64_t weights = c.B * heads.q * c.T * c.T * size_of(t);
        const Memory flash(GetParam(), t, attention_flash, c, dropout),
            plain(GetParam(), t, attention_plain, c, dropout);
        EXPECT_EQ(plain.forward, weights) << "the probabilities, in " << name_of(t) << ", " << c;
        EXPECT_LT(flash.forward, weights) << name_of(t) << ", " << c;
        EXPECT_LT(flash.backward, weights) << name_of(t) << ", " << c;
        // Nothing is larger than qkv or its gradient.
        EXPECT_EQ(flash.backward, c.qkv().numel() * size_of(t)) << name_of(t) << ", " << c;
        EXPECT_LE(flash.forward, c.qkv().numel() * size_of(t)) << name_of(t) << ", " << c;
      }
}

// Plain would save 16 TiB here.
TEST(L15_FlashMemoryOnMeta, AMillionTokensTakeGigabytes) {
  const AttentionCase c{int64_t(1) << 20, 64, {8, 1}};
  const auto on_meta = [&](AttentionOp op) {
    Context context("meta");
    Tensor qkv(context.device, c.qkv(), DType::BF16, Kind::Temporary, "qkv");
    Leaf leaf;
    attach(qkv, leaf, "qkv");
    Tape tape;
    const Tensor y = op(qkv, c.heads, c.mask, 0, 0);
    const int64_t saved = tape.saved_bytes();
    tape.backward(y, empty_like(y, "dy"));
    const Usage& peak = context.device.meter().at_peak();
    return std::pair(saved, peak.allocated() - peak[Kind::Workspace]);
  };
  const auto [flash, flash_peak] = on_meta(attention_flash);
  const auto [plain, plain_peak] = on_meta(attention_plain);
  EXPECT_EQ(flash, saved_by_flash(DType::BF16, c));
  EXPECT_EQ(plain, c.qkv().numel() * 2 + 8 * c.T * c.T * 2);
  EXPECT_LT(flash_peak, int64_t(5) << 30);
  EXPECT_GT(plain_peak, int64_t(16) << 40);
}

}  // namespace
}  // namespace gradus
