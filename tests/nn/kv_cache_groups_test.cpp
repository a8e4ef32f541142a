// The KV cache of models whose query heads share key-value heads, and of Llama and Mixtral: the same logits
// as without a cache, and 2 L KV D numbers per token.
#include <algorithm>

#include "src/nn/generate.h"
#include "tests/devices.h"
#include "tests/nn/kv_cache_testing.h"

namespace gradus {
namespace {

TransformerConfig grouped(TransformerConfig config, int64_t heads, int64_t kv_heads) {
  config.heads = heads, config.kv_heads = kv_heads, config.channels = 6 * heads;
  return config;
}
TransformerConfig llama(int64_t kv_heads) {
  return {.vocab = 23,
          .context = 12,
          .layers = 2,
          .heads = 4,
          .channels = 24,
          .output_head = OutputHead::Untied,
          .activation = swiglu,
          .rotary = 6,
          .norm = NormKind::Rms,
          .biases = false,
          .kv_heads = kv_heads,
          .rotary_base = 500000,
          .mlp_channels = 14};
}
TransformerConfig mixtral() {
  TransformerConfig c = llama(2);
  c.experts = 3, c.chosen = 2;
  return c;
}
TransformerConfig with_attention(TransformerConfig config, decltype(&attention_plain) attention) {
  config.attention = attention;
  return config;
}

struct L21_KvCache : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
  std::vector<DType> dtypes{DType::F32, DType::BF16, DType::F16};
  void SetUp() override {
    if (GetParam() == std::string("cpu")) dtypes.push_back(DType::F64);
  }
  static void expect_in_budget(const TransformerConfig& config, DType t) {
    for (const int64_t prompt : {int64_t(1), int64_t(5), config.context})
      for (const auto attention : {attention_plain, attention_flash})
        EXPECT_LE(budget_used(with_attention(with_dtype(config, t), attention), prompt), 100)
            << name_of(t) << (attention == attention_plain ? ", plain" : ", flash") << ", prompt " << prompt
            << ", " << config.kv_heads << " of " << config.heads << " heads";
  }
};
ON_DEVICES_WITH_DATA(L21_KvCache);

TEST_P(L21_KvCache, LogitsOfGroupedHeadsAreThoseWithoutACache) {
  for (const DType t : dtypes)
    for (const TransformerConfig& config : {grouped(kGpt, 6, 2), grouped(kGpt, 3, 1), grouped(kNeoX, 4, 2)})
      expect_in_budget(config, t);
}
TEST_P(L21_KvCache, LogitsOfLlamaAreThoseWithoutACache) {
  for (const DType t : dtypes)
    for (const int64_t kv_heads : {0, 1, 2}) expect_in_budget(llama(kv_heads), t);
}
// In 16 bits the rounding of attention can change which experts a token chooses.
TEST_P(L21_KvCache, LogitsOfMixtralAreThoseWithoutACache) {
  for (const DType t : dtypes)
    if (size_of(t) >= 4) expect_in_budget(mixtral(), t);
}

TEST_P(L21_KvCache, SelectedSequencesGoOnAsTheirParents) {
  const TransformerConfig config = llama(2);
  Transformer model(config);
  randomize(model, 2);
  const int64_t V = config.vocab;
  KvCache cache(model, 3, 7);
  model.next_logits(ids_of(random_ids(3 * 4, V), {3, 4}), cache);
  const std::vector<int32_t> parents{2, 0, 0, 2, 1};
  KvCache children = cache.select(parents);
  const std::vector<float> parent = to_host<float>(model.next_logits(ids_of({6, 6, 6}, {3, 1}), cache)),
                           child =
                               to_host<float>(model.next_logits(ids_of({6, 6, 6, 6, 6}, {5, 1}), children));
  for (int64_t b = 0; b < 5; ++b)
    for (int64_t v = 0; v < V; ++v)
      ASSERT_EQ(child[b * V + v], parent[parents[b] * V + v]) << "sequence " << b << ", logit " << v;
}

TEST_P(L21_KvCache, OneBeamIsAlwaysTheLikeliestToken) {
  for (const TransformerConfig& config : {grouped(kGpt, 6, 2), llama(2), mixtral()}) {
    Transformer model(config);
    randomize(model, 5);
    std::vector<int32_t> text{2};
    while (int64_t(text.size()) <= config.context) {
      const std::vector<float> logits = to_host<float>(model.logits(ids_of(text, {1, int64_t(text.size())})));
      const auto last = logits.end() - config.vocab;
      text.push_back(int32_t(std::max_element(last, logits.end()) - last));
    }
    EXPECT_EQ(beam_search(model, {2}, config.context, 1).at(0).ids,
              std::vector<int32_t>(text.begin() + 1, text.end()));
  }
}

TEST(L21_KvCacheBytes, TwoLayersTimesKeyValueHeadsForEachToken) {
  for (const char* device : {"meta", "cpu", "emu"})
    for (const DType t : {DType::F32, DType::BF16})
      for (const int64_t kv_heads : {0, 1, 2, 4}) {
        Context context(device, 3);
        context.device.allocator().keep_history();
        const TransformerConfig config = with_dtype(llama(kv_heads), t);
        const Transformer model(config);
        const int64_t width = 2 * (kv_heads == 0 ? 4 : kv_heads) * 6;  // 2 KV D
        EXPECT_EQ(kv_bytes_per_token(config), 2 * width * size_of(t));
        KvCache cache(model, 3, 12);
        EXPECT_EQ(cache.bytes(), 3 * 12 * 2 * width * size_of(t));
        EXPECT_EQ(context.device.meter().now()[Kind::Activation], cache.bytes()) << device;
        EXPECT_EQ(cache.select({0, 2}).bytes() * 3, cache.bytes() * 2);
        for (const MemoryEvent& e : context.device.allocator().history())
          if (e.action == Action::Alloc && e.name == "kv_cache.h.1" && e.shape[1] == 3) {
            EXPECT_EQ(e.shape, (Shape{12, 3, width}));
          }
      }
}

// 128 KiB per token in 16 bits; with one key-value head per query head it would be 512 KiB.
TEST(L21_KvCacheBytes, OfLlama3WithEightBillionParameters) {
  TransformerConfig c = llama(8);
  c.layers = 32, c.heads = 32, c.channels = 4096;
  EXPECT_EQ(kv_bytes_per_token(with_dtype(c, DType::BF16)), 128 << 10);
  c.kv_heads = 32;
  EXPECT_EQ(kv_bytes_per_token(with_dtype(c, DType::BF16)), 512 << 10);
}

// FLOPs of a token: its own products, 2 per weight, and 4 L C per token that it attends to, because each
// query head has its own scores, whatever it shares.
TEST(L21_KvCacheBytes, ATokenCostsItsOwnProductsAndALookBack) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    Context context("meta", 3);
    const TransformerConfig config = llama(kv_heads);
    const Transformer model(config);
    const int64_t L = 2, C = 24, D = 6, V = 23, B = 3, I = 14;
    const int64_t weights = L * ((C + 2 * kv_heads * D) * C + C * C + 3 * I * C) + V * C;
    KvCache cache(model, B, 12);
    Meter& meter = context.device.meter();
    const std::vector<int32_t> ids = random_ids(B * 12, V);
    for (int64_t t = 0; t < 12; ++t) {
      meter.reset_totals();
      model.next_logits(part_of(ids, B, t, 1), cache);
      EXPECT_EQ(meter.totals(OpClass::Contraction).flops, B * (2 * weights + 4 * L * C * (t + 1)));
    }
  }
}

TEST(L21_KvCacheOnCpu, ACacheOfOtherGroupsIsAnotherModels) {
  Context context("cpu", 3);
  Transformer two(llama(2));
  const Transformer one(llama(1)), ungrouped(llama(0));
  randomize(two, 1);
  KvCache cache(two, 1, 5);
  for (const Transformer* other : {&one, &ungrouped})
    expect_refused("next_logits: the cache was made for a different model", [&] {
      other->next_logits(ids_of({1}, {1, 1}), cache);
    });
  EXPECT_EQ(cache.length(), 0);
  two.next_logits(ids_of({1}, {1, 1}), cache);
  EXPECT_EQ(cache.length(), 1);
}

}  // namespace
}  // namespace gradus
