#include "src/nn/transformer_config.h"

#include <charconv>
#include <optional>

#include "src/core/nearest.h"

namespace gradus {

// Ten times as many as the deepest published one, and what the calculator runs in seconds.
constexpr int64_t kMostLayers = 1000;

void TransformerConfig::validate() const {
  check(vocab > 0 && context > 0 && layers > 0 && heads > 0 && channels > 0, "transformer: vocabulary ",
        vocab, ", context ", context, ", layers ", layers, ", heads ", heads, ", channels ", channels,
        "; every size must be at least 1");
  check(layers <= kMostLayers, "transformer: ", layers, " layers; gradus trains at most ", kMostLayers);
  const double C = double(channels), about = (double(vocab) + double(context) + 12 * double(layers) * C) * C;
  check(about < 1e15, "transformer: about ", about, " parameters; gradus counts up to 1e15");
  check(channels % heads == 0, "transformer: ", heads, " heads do not divide ", channels,
        " channels; choose a multiple of the heads, for example ", (channels / heads + 1) * heads);
  check(dropout >= 0 && dropout < 1, "transformer: dropout ", dropout, " must be at least 0 and below 1");
  check(rotary >= 0 && rotary % 2 == 0 && rotary <= channels / heads, "transformer: ", rotary, " of the ",
        channels / heads, " dimensions of a head cannot turn; it must be an even number, at most all");
  check(token_types >= 0 && labels >= 0, "transformer: token types ", token_types, ", labels ", labels,
        "; neither can be negative");
  check(labels == 0 || output_head == OutputHead::Pooled, "transformer: ", labels,
        " labels need a pooled head: output_head = OutputHead::Pooled");
  check(loss_rows >= 0 && (loss_rows == 0 || output_head != OutputHead::Pooled), "transformer: loss_rows is ",
        loss_rows, "; it is 0 or more, and 0 with a pooled head, which has logits for whole samples");
}

int64_t TransformerConfig::parameter_count() const {
  const int64_t C = channels;
  int64_t rows = vocab + token_types;  // of C: embeddings and heads
  if (rotary == 0) rows += context;
  if (output_head == OutputHead::Untied) rows += vocab;
  if (output_head == OutputHead::Pooled) rows += C + 1 + labels;  // pooler and its bias, classifier
  return rows * C + labels + layers * (12 * C * C + 13 * C) + 2 * C;
}

int64_t TransformerConfig::flops_per_token() const {
  return 6 * parameter_count() + 12 * layers * channels * context;
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
