// Compares a model with golden values.
#pragma once
#include "src/nn/transformer.h"
#include "tests/nn/golden_testing.h"

namespace gradus {

// On each device, with either attention.
using Attention = decltype(&attention_plain);
struct GoldenTest : ::testing::TestWithParam<std::tuple<const char*, Attention>> {
  Context context{std::get<const char*>(GetParam())};
  TransformerConfig with_attention(TransformerConfig config) {
    config.attention = std::get<Attention>(GetParam());
    return config;
  }
};
const auto kDevicesAndAttentions = ::testing::Combine(::testing::ValuesIn(devices_with_data()),
                                                      ::testing::Values(attention_plain, attention_flash));
const auto kName = [](const auto& info) {
  return std::string(std::get<0>(info.param)) +
         (std::get<1>(info.param) == attention_plain ? "_plain" : "_flash");
};

}  // namespace gradus
