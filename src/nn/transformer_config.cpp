#include "src/nn/transformer_config.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "src/core/nearest.h"

namespace gradus {

// Ten times as many layers as the deepest published model; lesson 04's calculator takes seconds for them.
constexpr int64_t kMostLayers = 1000;

static void check_mixture(const TransformerConfig& c) {
  check(c.chosen >= 2 && c.chosen <= c.experts, "transformer: each token takes ", c.chosen, " of ", c.experts,
        " experts; it must be at least 2, because the weight of a single expert is always 1, and at most ",
        "the number of experts");
  check(c.capacity_factor >= 0 && std::isfinite(c.capacity_factor) && c.balance >= 0 &&
            std::isfinite(c.balance),
        "transformer: capacity factor ", c.capacity_factor, ", balance ", c.balance,
        "; both must be finite and at least 0");
  check(c.residual == Residual::PreNorm && !c.biases,
        "transformer: experts need pre-norm blocks (Residual::PreNorm) and no biases (biases = false)");
}

void TransformerConfig::validate() const {
  check(vocab > 0 && context > 0 && layers > 0 && heads > 0 && channels > 0, "transformer: vocabulary ",
        vocab, ", context ", context, ", layers ", layers, ", heads ", heads, ", channels ", channels,
        "; every size must be at least 1");
  check(layers <= kMostLayers, "transformer: ", layers, " layers; gradus trains at most ", kMostLayers);
  check(kv_heads >= 0 && (kv_heads == 0 || heads % kv_heads == 0), "transformer: ", heads,
        " heads cannot share ", kv_heads, " heads of keys and values; choose a divisor of the heads, or 0");
  check(mlp_channels >= 0 && experts >= 0, "transformer: mlp_channels ", mlp_channels, ", experts ", experts,
        "; neither can be negative");
  const double C = double(channels), hidden = mlp_channels > 0 ? double(mlp_channels) : 4 * C,
               mlps = double(std::max<int64_t>(experts, 1)) * (gated() ? 3 : 2) * hidden,
               about = (double(vocab) + double(context) + double(layers) * (4 * C + mlps)) * C;
  check(about < 1e15, "transformer: about ", about, " parameters; gradus counts up to 1e15");
  check(channels % heads == 0, "transformer: ", heads, " heads do not divide ", channels,
        " channels; choose a multiple of the heads, for example ", (channels / heads + 1) * heads);
  check(dropout >= 0 && dropout < 1, "transformer: dropout ", dropout, " must be at least 0 and below 1");
  check(rotary >= 0 && rotary % 2 == 0 && rotary <= channels / heads, "transformer: ", rotary, " of the ",
        channels / heads, " dimensions of a head cannot be rotated; it must be an even number, at most all");
  check(token_types >= 0 && labels >= 0, "transformer: token types ", token_types, ", labels ", labels,
        "; neither can be negative");
  check(labels == 0 || output_head == OutputHead::Pooled, "transformer: ", labels,
        " labels need a pooled head: output_head = OutputHead::Pooled");
  check(rotary_base > 1 && std::isfinite(rotary_base), "transformer: the rotary base is ", rotary_base,
        "; it must be a finite number above 1, for example 10000");
  if (experts > 0) check_mixture(*this);
  check(loss_rows >= 0 && (loss_rows == 0 || output_head != OutputHead::Pooled), "transformer: loss_rows is ",
        loss_rows, "; it is 0 or more, and 0 with a pooled head, which has logits for whole samples");
}

// Outputs of an MLP's first product.
static int64_t first_width(const TransformerConfig& c) { return (c.gated() ? 2 : 1) * c.hidden_channels(); }
static int64_t expert_parameters(const TransformerConfig& c) {
  return c.channels * (first_width(c) + c.hidden_channels());
}

int64_t TransformerConfig::parameter_count() const {
  const int64_t C = channels;
  int64_t rows = vocab + token_types;  // of C elements: embeddings and heads
  if (rotary == 0) rows += context;
  if (output_head == OutputHead::Untied) rows += vocab;
  if (output_head == OutputHead::Pooled) rows += C + 1 + labels;  // pooler and its bias, classifier
  const int64_t norms = norm == NormKind::Layer ? 2 * C : C, bias = biases ? 1 : 0;
  const auto linear = [bias](int64_t in, int64_t out) { return (in + bias) * out; };
  int64_t block = 2 * norms + linear(C, qkv_channels()) + linear(C, C);
  if (experts > 0)
    block += experts * (C + expert_parameters(*this));
  else
    block += linear(C, first_width(*this)) + linear(hidden_channels(), C);
  return rows * C + labels + layers * block + norms;
}

int64_t TransformerConfig::active_parameter_count() const {
  if (experts == 0) return parameter_count();
  return parameter_count() - layers * (experts - chosen) * expert_parameters(*this);
}

int64_t TransformerConfig::flops_per_token() const {
  return 6 * active_parameter_count() + 12 * layers * channels * context;
}

int64_t TransformerConfig::hidden_channels() const { return mlp_channels > 0 ? mlp_channels : 4 * channels; }

int64_t TransformerConfig::expert_capacity(int64_t T) const {
  if (capacity_factor == 0) return T;
  // BEGIN SOLUTION 21.1
  const double places = std::ceil(capacity_factor * double(chosen * T) / double(experts));
  return int64_t(std::min(places, double(T)));
  // STUB: todo("21.1", "an expert's places for a sequence of T tokens", T);
  // END SOLUTION 21.1
}

static constexpr TransformerConfig gpt(int64_t layers, int64_t channels, int64_t heads) {
  return {.vocab = 50257, .context = 1024, .layers = layers, .heads = heads, .channels = channels};
}
static constexpr TransformerConfig bert(int64_t layers, int64_t channels, int64_t heads) {
  return {.vocab = 30522,
          .context = 512,
          .layers = layers,
          .heads = heads,
          .channels = channels,
          .dropout = 0.1,
          .residual = Residual::PostNorm,
          .output_head = OutputHead::Pooled,
          .mask = Mask::None,
          .activation = gelu_erf,
          .token_types = 2,
          .norm_eps = 1e-12};
}
static constexpr TransformerConfig neox(int64_t layers, int64_t channels, int64_t heads, int64_t rotary) {
  return {.vocab = 30080,
          .context = 2048,
          .layers = layers,
          .heads = heads,
          .channels = channels,
          .residual = Residual::Parallel,
          .output_head = OutputHead::Untied,
          .activation = gelu_erf,
          .rotary = rotary};
}
static constexpr TransformerConfig llama(int64_t vocab, int64_t context, int64_t kv_heads, double base,
                                         int64_t mlp) {
  return {.vocab = vocab,
          .context = context,
          .layers = 32,
          .heads = 32,
          .channels = 4096,
          .output_head = OutputHead::Untied,
          .activation = swiglu,
          .rotary = 128,
          .norm = NormKind::Rms,
          .biases = false,
          .kv_heads = kv_heads,
          .rotary_base = base,
          .mlp_channels = mlp};
}
static constexpr TransformerConfig mixtral() {
  TransformerConfig c = llama(32000, 32768, 8, 1e6, 14336);
  c.experts = 8, c.balance = 0.02;
  return c;
}

struct Model {
  std::string_view name;
  TransformerConfig config;
};
static constexpr Model kModels[] = {
    {"gpt2", gpt(12, 768, 12)},
    {"gpt2-medium", gpt(24, 1024, 16)},
    {"gpt2-large", gpt(36, 1280, 20)},
    {"gpt2-xl", gpt(48, 1600, 25)},
    {"bert-base", bert(12, 768, 12)},
    {"bert-large", bert(24, 1024, 16)},
    {"polyglot-ko-1.3b", neox(24, 2048, 16, 64)},
    {"llama-2-7b", llama(32000, 4096, 32, kRotaryBase, 11008)},
    {"llama-3-8b", llama(128256, 8192, 8, 5e5, 14336)},
    {"mixtral-8x7b", mixtral()},
};

// gpt-LAYERSxCHANNELSxHEADS
static std::optional<TransformerConfig> by_numbers(std::string_view name) {
  if (!name.starts_with("gpt-")) return {};
  int64_t numbers[3];
  const char *at = name.data() + 3, *end = name.data() + name.size();
  for (int i = 0; i < 3; ++i) {
    if (at == end || *at != (i == 0 ? '-' : 'x')) return {};
    const auto [rest, error] = std::from_chars(at + 1, end, numbers[i]);
    if (error != std::errc()) return {};
    at = rest;
  }
  if (at != end) return {};
  return gpt(numbers[0], numbers[1], numbers[2]);
}

TransformerConfig transformer_config(std::string_view name) {
  if (const auto config = by_numbers(name)) return config->validate(), *config;
  std::vector<std::string> known;
  for (const Model& m : kModels) {
    if (m.name == name) return m.config;
    known.emplace_back(m.name);
  }
  std::string list;
  for (const std::string& k : known) list += k + ", ";
  fail("model '", name, "' is unknown; did you mean ", nearest(name, known), "? Known: ", list,
       "and gpt-LAYERSxCHANNELSxHEADS, for example gpt-36x4096x32");
}

}  // namespace gradus
