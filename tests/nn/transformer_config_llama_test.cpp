// The fields of the configuration for Llama and Mixtral: defaults, refusals on both sides of each limit, and
// the names, shapes and number of parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "src/nn/transformer.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using C = TransformerConfig;

C llama(const std::function<void(C&)>& change = [](C&) {}) {
  C c{.vocab = 10,
      .context = 4,
      .layers = 2,
      .heads = 4,
      .channels = 16,
      .output_head = OutputHead::Untied,
      .activation = swiglu,
      .rotary = 4,
      .norm = NormKind::Rms,
      .biases = false,
      .kv_heads = 2,
      .mlp_channels = 7};
  change(c);
  return c;
}
C mixtral(const std::function<void(C&)>& change = [](C&) {}) {
  C c = llama();
  c.experts = 3, c.chosen = 2;
  change(c);
  return c;
}

TEST(L21_TransformerConfig, TheDefaultsAreThoseOfGpt2) {
  const C c;
  EXPECT_EQ(c.norm, NormKind::Layer);
  EXPECT_TRUE(c.biases);
  EXPECT_EQ(c.kv_heads, 0);
  EXPECT_EQ(c.rotary_base, 10000);
  EXPECT_EQ(c.mlp_channels, 0);
  EXPECT_EQ(c.experts, 0);
  EXPECT_EQ(c.chosen, 2);
  EXPECT_EQ(c.capacity_factor, 0);
  EXPECT_EQ(c.balance, 0);
}

// Validation must fail with a sentence that names the value.
void refused(const std::string& value, const C& c) {
  const std::string text = refusal([&] { c.validate(); });
  EXPECT_TRUE(text.starts_with("transformer: ")) << "refusal of " << value << ": '" << text << "'";
  EXPECT_NE(text.find(value), std::string::npos) << text;
  Context context("meta");
  EXPECT_EQ(refusal([&] { Transformer model(c); }), text);
}
void accepted(const C& c) {
  Context context("meta");
  EXPECT_EQ(refusal([&] { Transformer model(c); }), "");
}

TEST(L21_TransformerConfig, KeyValueHeadsDivideTheHeads) {
  for (const int64_t n : {0, 1, 2, 4}) accepted(llama([=](C& c) { c.kv_heads = n; }));
  for (const int64_t n : {-4, -1, 3, 5, 8}) refused(std::to_string(n), llama([=](C& c) { c.kv_heads = n; }));
}

TEST(L21_TransformerConfig, TheMlpHasAWidth) {
  for (const int64_t n : {0, 1, 1000}) accepted(llama([=](C& c) { c.mlp_channels = n; }));
  for (const int64_t n : {-1, -64}) refused(std::to_string(n), llama([=](C& c) { c.mlp_channels = n; }));
}

TEST(L21_TransformerConfig, TheRotaryBaseIsAboveOne) {
  for (const double base : {1.5, 10000.0, 1e6}) accepted(llama([=](C& c) { c.rotary_base = base; }));
  refused("1", llama([](C& c) { c.rotary_base = 1; }));
  refused("0", llama([](C& c) { c.rotary_base = 0; }));
  refused("-10000", llama([](C& c) { c.rotary_base = -10000; }));
  refused("nan", llama([](C& c) { c.rotary_base = NAN; }));
}

TEST(L21_TransformerConfig, ATokenChoosesSomeOfTheExperts) {
  for (const int64_t chosen : {2, 3}) accepted(mixtral([=](C& c) { c.chosen = chosen; }));
  for (const int64_t chosen : {-1, 0, 1, 4})
    refused(std::to_string(chosen), mixtral([=](C& c) { c.chosen = chosen; }));
  refused("2", mixtral([](C& c) { c.experts = 1; }));
  refused("-1", mixtral([](C& c) { c.experts = -1; }));
}

TEST(L21_TransformerConfig, CapacityAndBalanceAreNotNegative) {
  for (const double x : {0.0, 0.5, 1.25, 100.0}) {
    accepted(mixtral([=](C& c) { c.capacity_factor = x; }));
    accepted(mixtral([=](C& c) { c.balance = x; }));
  }
  refused("-0.25", mixtral([](C& c) { c.capacity_factor = -0.25; }));
  refused("nan", mixtral([](C& c) { c.capacity_factor = NAN; }));
  refused("-0.25", mixtral([](C& c) { c.balance = -0.25; }));
  refused("nan", mixtral([](C& c) { c.balance = NAN; }));
}

std::map<std::string, Shape> parameters_of(const C& c) {
  Context context("meta");
  const Transformer model(c);
  std::map<std::string, Shape> shapes;
  for (const Parameter& p : model.parameters) shapes[p.name] = p.value.shape();
  EXPECT_EQ(shapes.size(), model.parameters.size());
  EXPECT_EQ(c.parameter_count(), model.parameters.numel())
      << "the formula differs from the parameters of the model";
  return shapes;
}
std::map<std::string, Shape> with_layers(std::map<std::string, Shape> rows,
                                         const std::map<std::string, Shape>& of_a_layer) {
  for (const char* h : {"h.0.", "h.1."})
    for (const auto& [name, shape] : of_a_layer) rows.emplace(h + name, shape);
  return rows;
}
void expect_parameters(const C& c, const std::map<std::string, Shape>& want) {
  const std::map<std::string, Shape> got = parameters_of(c);
  for (const auto& [name, shape] : want) {
    ASSERT_TRUE(got.contains(name)) << name << " is missing";
    EXPECT_EQ(got.at(name), shape) << name;
  }
  for (const auto& [name, shape] : got)
    EXPECT_TRUE(want.contains(name)) << name << " " << shape << " is unexpected";
}
const std::map<std::string, Shape> kEnds{
    {"wte.weight", {10, 16}}, {"ln_f.weight", {16}}, {"lm_head.weight", {10, 16}}};

TEST(L21_TransformerConfig, ParametersOfALlama) {
  expect_parameters(llama(), with_layers(kEnds, {{"ln_1.weight", {16}},
                                                 {"attn.c_attn.weight", {(4 + 2 * 2) * 4, 16}},
                                                 {"attn.c_proj.weight", {16, 16}},
                                                 {"ln_2.weight", {16}},
                                                 {"mlp.c_fc.weight", {2 * 7, 16}},
                                                 {"mlp.c_proj.weight", {16, 7}}}));
}
TEST(L21_TransformerConfig, ParametersOfAMixtral) {
  expect_parameters(mixtral(), with_layers(kEnds, {{"ln_1.weight", {16}},
                                                   {"attn.c_attn.weight", {(4 + 2 * 2) * 4, 16}},
                                                   {"attn.c_proj.weight", {16, 16}},
                                                   {"ln_2.weight", {16}},
                                                   {"mlp.router.weight", {3, 16}},
                                                   {"mlp.experts.c_fc.weight", {3, 2 * 7, 16}},
                                                   {"mlp.experts.c_proj.weight", {3, 16, 7}}}));
}

// A GPT-2 in which a single field is changed.
TEST(L21_TransformerConfig, ParametersOfAGpt2WithOneFieldOfALlama) {
  const C gpt{.vocab = 10, .context = 4, .layers = 2, .heads = 4, .channels = 16};
  const std::map<std::string, Shape> plain = parameters_of(gpt);
  const auto expect_changed = [&](const std::function<void(C&)>& change,
                                  const std::map<std::string, Shape>& of_a_layer) {
    C c = gpt;
    change(c);
    std::map<std::string, Shape> want = plain;
    for (const char* h : {"h.0.", "h.1."})
      for (const auto& [name, shape] : of_a_layer) want[h + name] = shape;
    expect_parameters(c, want);
  };
  expect_changed([](C& c) { c.kv_heads = 1; },
                 {{"attn.c_attn.weight", {(4 + 2) * 4, 16}}, {"attn.c_attn.bias", {(4 + 2) * 4}}});
  expect_changed([](C& c) { c.kv_heads = 4; }, {});
  expect_changed([](C& c) { c.mlp_channels = 5; },
                 {{"mlp.c_fc.weight", {5, 16}}, {"mlp.c_fc.bias", {5}}, {"mlp.c_proj.weight", {16, 5}}});
  expect_changed([](C& c) { c.activation = swiglu; },
                 {{"mlp.c_fc.weight", {2 * 64, 16}}, {"mlp.c_fc.bias", {2 * 64}}});
  C c = gpt;
  c.norm = NormKind::Rms;
  std::map<std::string, Shape> without_shifts = plain;
  std::erase_if(without_shifts, [](const auto& row) {
    return row.first.find("ln_") != std::string::npos && row.first.ends_with(".bias");
  });
  expect_parameters(c, without_shifts);
}

// From the published table of Llama 2 and of Mixtral: 6,738,415,616 and 46,702,792,704.
TEST(L21_TransformerConfig, ParameterCountsAsPublished) {
  C c = llama();
  c.vocab = 32000, c.context = 4096, c.layers = 32, c.heads = 32, c.channels = 4096, c.rotary = 128;
  c.kv_heads = 0, c.mlp_channels = 11008;
  EXPECT_EQ(c.parameter_count(), 6'738'415'616);
  c.kv_heads = 8, c.mlp_channels = 14336, c.experts = 8;
  EXPECT_EQ(c.parameter_count(), 46'702'792'704);
  c.experts = 0, c.vocab = 128256;
  EXPECT_EQ(c.parameter_count(), 8'030'261'248) << "Llama 3 8B";
}

}  // namespace
}  // namespace gradus
