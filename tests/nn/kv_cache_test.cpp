// The KV cache: the same logits as without one, its bytes, its work, its refusals.
#include <iostream>
#include <map>

#include "tests/devices.h"
#include "tests/nn/kv_cache_testing.h"

namespace gradus {
namespace {

const TransformerConfig kPostNorm{
    .vocab = 7, .context = 6, .layers = 2, .heads = 1, .channels = 9, .residual = Residual::PostNorm};

struct L04_KvCache : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
};
ON_DEVICES_WITH_DATA(L04_KvCache);

TEST_P(L04_KvCache, LogitsAreThoseWithoutACache) {
  std::map<std::string, double> used;
  std::vector<DType> dtypes{DType::F32, DType::BF16, DType::F16};
  if (context.device.name() == std::string("cpu")) dtypes.push_back(DType::F64);
  for (const TransformerConfig& config : {kGpt, kNeoX, kPostNorm})
    for (const DType t : dtypes)
      for (const int64_t prompt : {int64_t(1), int64_t(5), config.context}) {
        const double percent = budget_used(with_dtype(config, t), prompt);
        EXPECT_LE(percent, 100) << name_of(t) << ", vocabulary " << config.vocab << ", prompt " << prompt;
        used[name_of(t)] = std::max(used[name_of(t)], percent);
      }
  for (const auto& [dtype, percent] : used) {
    RecordProperty("error / allowed error, %, " + dtype, std::to_string(percent));
    std::cout << dtype << ": error / allowed error: " << percent << " %\n";
  }
}

TEST_P(L04_KvCache, SelectedSequencesGoOnAsTheirParents) {
  Transformer model(kNeoX);
  randomize(model, 2);
  const int64_t B = 3, V = kNeoX.vocab;
  KvCache cache(model, B, 7);
  model.next_logits(ids_of(random_ids(B * 4, V), {B, 4}), cache);
  const std::vector<int32_t> parents{2, 0, 0, 2, 1};
  KvCache children = cache.select(parents);
  EXPECT_EQ(children.sequences(), 5);
  EXPECT_EQ(children.length(), 4);
  EXPECT_EQ(children.capacity(), 7);
  const std::vector<float> parent = to_host<float>(model.next_logits(ids_of({6, 6, 6}, {B, 1}), cache)),
                           child =
                               to_host<float>(model.next_logits(ids_of({6, 6, 6, 6, 6}, {5, 1}), children));
  for (int64_t b = 0; b < 5; ++b)
    for (int64_t v = 0; v < V; ++v)
      ASSERT_EQ(child[b * V + v], parent[parents[b] * V + v]) << "sequence " << b << ", logit " << v;
}

TEST(L04_KvCacheOnCpu, NothingIsDroppedAndNothingRecorded) {
  Context context("cpu", 3);
  TransformerConfig dropping = kGpt;
  dropping.dropout = 0.5;
  Transformer model(kGpt), same(dropping);
  randomize(model, 1), randomize(same, 1);
  KvCache cache(model, 1, 5), other(same, 1, 5);
  Tape tape;
  for (const int n : {4, 1}) {
    const std::vector<int32_t> ids = random_ids(n, kGpt.vocab);
    EXPECT_EQ(to_host<float>(model.next_logits(ids_of(ids, {1, n}), cache)),
              to_host<float>(same.next_logits(ids_of(ids, {1, n}), other)));
  }
  EXPECT_TRUE(tape.nodes().empty());
}

TEST(L04_KvCacheBytes, TwoLCForEachTokenAndSequence) {
  for (const char* device : {"meta", "cpu", "emu"})
    for (const DType t : {DType::F32, DType::BF16}) {
      Context context(device, 3);
      const Transformer model(with_dtype(kGpt, t));
      const int64_t token = 2 * 2 * 21 * size_of(t);
      EXPECT_EQ(kv_bytes_per_token(with_dtype(kGpt, t)), token);
      const Meter& meter = context.device.meter();
      for (const int64_t B : {1, 3})
        for (const int64_t T : {1, 13}) {
          KvCache cache(model, B, T);
          EXPECT_EQ(cache.bytes(), B * T * token);
          EXPECT_EQ(meter.now()[Kind::Activation], B * T * token) << device;
          context.device.meter().reset_peak();
          cache = cache.select(std::vector<int32_t>(5, 0));
          EXPECT_EQ(meter.at_peak()[Kind::Activation], (B + 5) * T * token)
              << "both caches must be alive at the peak";
          EXPECT_EQ(meter.at_peak()[Kind::Temporary], 0);
          EXPECT_EQ(meter.now()[Kind::Activation], 5 * T * token) << "the first cache must be freed";
        }
      EXPECT_EQ(meter.now()[Kind::Activation], 0);
    }
}

TEST(L04_KvCacheBytes, OfPublishedModels) {
  // GPT-2's 36 KiB and polyglot's 192 KiB per token in 16 bits: 384 MiB for a text of 2048.
  EXPECT_EQ(kv_bytes_per_token(with_dtype(transformer_config("gpt2"), DType::F16)), 36 << 10);
  TransformerConfig polyglot = transformer_config("polyglot-ko-1.3b");
  polyglot.precision = precision_recipe("mixed");  // the cache has the dtype of the copy that computes
  EXPECT_EQ(kv_bytes_per_token(polyglot), 192 << 10);
  Context context("meta");
  const Transformer model(polyglot);
  const KvCache cache(model, 4, 2048);
  EXPECT_EQ(context.device.meter().now()[Kind::Activation], int64_t(4 * 384) << 20);
}

// FLOPs of a token: its own products, 2 per weight, and 4 L C per token that it attends to.
TEST(L04_KvCacheBytes, ATokenCostsItsOwnProductsAndALookBack) {
  Context context("meta", 3);
  const Transformer model(kGpt);
  const int64_t L = 2, C = 21, V = 31, B = 3;
  KvCache cache(model, B, 13);
  Meter& meter = context.device.meter();
  const std::vector<int32_t> ids = random_ids(B * 13, V);
  for (int64_t t = 0; t < 13; ++t) {
    meter.reset_totals();
    model.next_logits(part_of(ids, B, t, 1), cache);
    EXPECT_EQ(meter.totals(OpClass::Contraction).flops,
              B * (24 * L * C * C + 2 * V * C + 4 * L * C * (t + 1)));
  }
}

TEST(L04_KvCacheOnCpu, WhatCannotBeReadIsRefusedAndLeavesTheCacheAsItWas) {
  Context context("cpu", 3);
  TransformerConfig deeper = kGpt, wider = kGpt;
  deeper.layers = 3, wider.channels = 24;
  Transformer model(kGpt);
  const Transformer deep(deeper), wide(wider);
  randomize(model, 1);
  KvCache cache(model, 2, 6);
  const auto read = [&](const std::vector<int32_t>& ids, const Shape& shape) {
    return to_host<float>(model.next_logits(ids_of(ids, shape), cache));
  };
  const auto refuse = [&](const char* with, const std::vector<int32_t>& ids, const Shape& shape) {
    expect_refused(with, [&] { read(ids, shape); });
  };
  refuse("they must be (B, T) with B = 2", {}, {2, 0});
  refuse("they must be (B, T) with B = 2", {1, 2, 3}, {3, 1});
  refuse("token ids are [2]; they must be (B, T) with B = 2", {1, 2}, {2});
  refuse("token ids are [2,1,1]; they must be (B, T) with B = 2", {1, 2}, {2, 1, 1});
  refuse("room for 6 tokens", random_ids(14, 31), {2, 7});
  KvCache of_one_token(model, 1, 6);
  model.next_logits(ids_of({3}, {1, 1}), of_one_token);
  expect_refused("one at a time", [&] { model.next_logits(ids_of({4, 5}, {1, 2}), of_one_token); });
  read(random_ids(8, 31), {2, 4});
  refuse("one at a time", random_ids(4, 31), {2, 2});
  refuse("embedding: id 31", {0, 31}, {2, 1});
  for (const Transformer* other : {&deep, &wide})
    expect_refused("next_logits: the cache was made for a different model", [&] {
      other->next_logits(ids_of({1, 2}, {2, 1}), cache);
    });
  // After a failure half-way, or without memory for a second cache, this cache is unchanged.
  KvCache copy = cache.select({0, 1});
  Allocator& allocator = context.device.allocator();
  expect_refused("kv_cache.h.0", [&] {
    allocator.set_budget(context.device.meter().reserved());
    cache.select(std::vector<int32_t>(10'000, 0));
  });
  allocator.set_budget(0);
  const Backend& whole = context.device.backend();
  Backend broken = whole;
  broken.gelu_fwd = [](const Ctx&, int64_t, CBuf, Out) { fail("the kernel broke"); };
  context.device.use(broken);
  refuse("the kernel broke", {9, 9}, {2, 1});
  context.device.use(whole);
  EXPECT_EQ(cache.length(), 4);
  EXPECT_EQ(read({5, 6}, {2, 1}), to_host<float>(model.next_logits(ids_of({5, 6}, {2, 1}), copy)));
  read({7, 8}, {2, 1});
  refuse("room for 6 tokens of each sequence, 6 were read", {1, 2}, {2, 1});
}

TEST(L04_KvCacheOnCpu, WhatCannotBeKeptIsRefused) {
  Context context("meta");
  const Transformer gpt(kGpt), bert(transformer_config("bert-base"));
  expect_refused("as BERT does", [&] { KvCache(bert, 1, 4); });
  TransformerConfig looks_ahead = kGpt, typed = kGpt;
  looks_ahead.mask = Mask::None;
  typed.token_types = 2;
  const Transformer unmasked(looks_ahead), with_types(typed);
  expect_refused("as BERT does", [&] { KvCache(unmasked, 1, 4); });
  expect_refused("as BERT does", [&] { KvCache(with_types, 1, 4); });
  expect_refused("more than the model's context, 13", [&] { KvCache(gpt, 1, 14); });
  for (const int64_t none : {0, -1}) {
    expect_refused("at least one of each", [&] { KvCache(gpt, none, 4); });
    expect_refused("at least one of each", [&] { KvCache(gpt, 1, none); });
  }
  expect_refused("more bytes than an int64", [&] { KvCache(gpt, int64_t(1) << 52, 13); });
  const KvCache cache(gpt, 2, 4);
  expect_refused("no sequence", [&] { cache.select({}); });
  expect_refused("sequence 2 was selected; the cache has 2", [&] { cache.select({0, 2}); });
  expect_refused("sequence -1 was selected", [&] { cache.select({-1}); });
}

TEST(L04_KvCacheOnCpu, BeginsEmptyWithATensorForEachLayer) {
  Context context("cpu", 3);
  Transformer model(kNeoX);
  randomize(model, 2);
  context.device.allocator().keep_history();
  KvCache cache(model, 2, 5);
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(cache.sequences(), 2);
  EXPECT_EQ(cache.capacity(), 5);
  std::string names;
  for (const MemoryEvent& e : context.device.allocator().history())
    if (e.action == Action::Alloc && e.name.starts_with("kv_cache")) {
      names += e.name + " ";
      EXPECT_EQ(e.shape, (Shape{5, 2, 2 * 10}));
      EXPECT_EQ(e.kind, Kind::Activation);
    }
  EXPECT_EQ(names, "kv_cache.h.0 kv_cache.h.1 kv_cache.h.2 ");
  KvCache three = cache.select({1, 0, 1});  // before anything was read
  EXPECT_EQ(three.length(), 0);
  EXPECT_EQ(three.sequences(), 3);
  EXPECT_EQ(three.capacity(), 5);
  KvCache fresh(model, 3, 5);
  const std::vector<int32_t> ids = random_ids(12, kNeoX.vocab);
  EXPECT_EQ(to_host<float>(model.next_logits(ids_of(ids, {3, 4}), three)),
            to_host<float>(model.next_logits(ids_of(ids, {3, 4}), fresh)));
}

}  // namespace
}  // namespace gradus
