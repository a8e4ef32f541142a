// A combination of methods for a budget, chosen by hand.
#pragma once
#include <cstdint>
#include <string>

namespace gradus {

// Flags with which GPT-2 (124M parameters, 16 sequences of 1,024 tokens per step, fp32, AdamW) needs at most
// kByHandBudget bytes, and is at most 20 % slower than without them. Allowed are only flags that change
// nothing but rounding: --attention, --keep, --loss-rows, --micro-batches.
constexpr int64_t kByHandBudget = int64_t(5) << 29;  // 2.5 GiB
std::string my_combination();

}  // namespace gradus
