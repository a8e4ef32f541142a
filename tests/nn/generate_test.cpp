// Sampling and beam search over a KV cache: the results are those without a cache, and the bytes are those of
// the formula.
#include "src/nn/generate.h"

#include <algorithm>
#include <cmath>

#include "src/train/text.h"
#include "tests/devices.h"
#include "tests/nn/generate_testing.h"

namespace gradus {
namespace {

// log p of `text` after `prompt`, computed from the whole text.
double log_probability(const Transformer& model, const std::vector<int32_t>& prompt,
                       const std::vector<int32_t>& text) {
  std::vector<int32_t> ids = prompt;
  ids.insert(ids.end(), text.begin(), text.end() - 1);
  const int64_t V = model.config.vocab, T = int64_t(ids.size());
  const std::vector<double> logits = to_host<double>(model.logits(ids_of(ids, {1, T})));
  double total = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const double* row = &logits[(prompt.size() - 1 + i) * V];
    double sum = 0;
    for (int64_t v = 0; v < V; ++v) sum += std::exp(row[v]);
    total += row[text[i]] - std::log(sum);
  }
  return total;
}

// The same search, in which the model reads every text from its beginning.
std::vector<Beam> search_without_cache(const Transformer& model, const std::vector<int32_t>& prompt,
                                       int64_t tokens, size_t beams) {
  std::vector<Beam> kept(1);
  for (int64_t i = 0; i < tokens; ++i) {
    std::vector<Beam> longer;
    for (const Beam& beam : kept)
      for (int32_t v = 0; v < model.config.vocab; ++v) {
        Beam next = beam;
        next.ids.push_back(v);
        next.log_probability = log_probability(model, prompt, next.ids);
        longer.push_back(next);
      }
    std::sort(longer.begin(), longer.end(),
              [](const Beam& a, const Beam& b) { return a.log_probability > b.log_probability; });
    longer.resize(std::min(longer.size(), beams));
    kept = longer;
  }
  return kept;
}

void expect_same(const std::vector<Beam>& got, const std::vector<Beam>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].ids, want[i].ids) << "beam " << i;
    EXPECT_NEAR(got[i].log_probability, want[i].log_probability,
                1e-5 * (1 + std::abs(want[i].log_probability)));
  }
}

struct L04_Generate : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
};
ON_DEVICES_WITH_DATA(L04_Generate);

TEST_P(L04_Generate, BeamSearchIsTheSearchWithoutACache) {
  for (TransformerConfig config : {kGpt, kNeoX}) {
    config.vocab = 9;  // small, because the model reads every text again for every token; 9 beams keep all
    Transformer model(config);
    randomize(model, 4);
    for (const int64_t beams : {1, 2, 5, 9})
      expect_same(beam_search(model, {3, 1}, 3, beams),
                  search_without_cache(model, {3, 1}, 3, size_t(beams)));
  }
}

TEST_P(L04_Generate, OneBeamIsAlwaysTheLikeliestTokenAndFillsTheContext) {
  Transformer model(kGpt);
  randomize(model, 5);
  std::vector<int32_t> text{2};
  while (text.size() <= 13) {
    const int64_t T = int64_t(text.size());
    const std::vector<float> logits = to_host<float>(model.logits(ids_of(text, {1, T})));
    text.push_back(
        int32_t(std::max_element(logits.end() - kGpt.vocab, logits.end()) - (logits.end() - kGpt.vocab)));
  }
  const std::vector<int32_t> continuation(text.begin() + 1, text.end());
  const std::vector<Beam> beams = beam_search(model, {2}, 13, 1);
  ASSERT_EQ(beams.size(), 1u);
  EXPECT_EQ(beams[0].ids, continuation);
  Rng rng(1, 1);
  EXPECT_EQ(sample(model, {2}, 13, 1e-4, rng), continuation) << "at a temperature near 0";
  EXPECT_EQ(beam_search(model, std::vector<int32_t>(text.begin(), text.end() - 1), 1, 1)[0].ids,
            std::vector<int32_t>{text.back()})
      << "a prompt as long as the context";
}

TEST_P(L04_Generate, ASampleIsTheSeedsAndThatOfLesson03) {
  Transformer model({.vocab = 256, .context = 30, .layers = 2, .heads = 2, .channels = 10});
  randomize(model, 6);
  const auto drawn = [&](uint64_t seed) {
    Rng rng(seed, 0x5A);
    return sample(model, ByteTokenizer::encode("a prompt"), 20, 1.5, rng);
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
  EXPECT_EQ("a prompt" + ByteTokenizer::decode(drawn(1)), sample_text(model, "a prompt", 20, 1.5, 1));
}

TEST(L04_GenerateOnCpu, TokensComeAsOftenAsTheModelSays) {
  Context context("cpu", 3);
  TransformerConfig config = kGpt;
  config.vocab = 5;
  Transformer model(config);
  randomize(model, 7);
  const int draws = 1000;
  for (const double temperature : {0.5, 1.0, 2.0}) {
    std::vector<double> p =
        to_host<double>(softmax(scale(model.logits(ids_of({3}, {1, 1})), 1 / temperature)));
    std::vector<int> count(5);
    Rng rng(1, 1);
    for (int i = 0; i < draws; ++i) ++count[sample(model, {3}, 1, temperature, rng)[0]];
    for (int v = 0; v < 5; ++v)  // five standard deviations of a binomial
      EXPECT_NEAR(count[v], draws * p[v], 5 * std::sqrt(draws * p[v] * (1 - p[v])) + 1)
          << "temperature " << temperature;
  }
}

struct Needed {
  Usage peak;
  std::map<Cost, int64_t> work;
};
Needed needed(const char* device, DType t, int64_t beams) {
  Context context(device, 3);
  context.device.meter().keep_trace();
  Transformer model(with_dtype(kNeoX, t));
  randomize(model, 1);
  if (beams > 0) {
    beam_search(model, {1}, 11, beams);
  } else {
    Rng rng(1, 1);
    sample(model, {1}, 11, 1, rng);
  }
  return {context.device.meter().at_peak(), context.device.meter().trace()};
}
TEST(L04_GenerateBytes, AreTheFormulaAndTheSameOnEveryDevice) {
  for (const DType t : {DType::F32, DType::F16})
    for (const int64_t beams : {0, 4, 29}) {  // 0: sampling
      const Needed meta = needed("meta", t, beams);
      const int64_t caches = std::max<int64_t>(2 * beams, 1);  // one per beam, and its copy
      EXPECT_EQ(meta.peak[Kind::Activation], caches * 11 * kv_bytes_per_token(with_dtype(kNeoX, t)))
          << beams << " beams";
      for (const char* device : devices_with_data()) {
        const Needed got = needed(device, t, beams);
        EXPECT_EQ(got.peak, meta.peak) << device << ", " << beams << " beams";
        EXPECT_EQ(got.work, meta.work) << device << ", " << beams << " beams";
      }
    }
}

TEST(L04_GenerateBytes, NoCacheIsMadeAfterTheLastToken) {
  Context context("meta", 3);
  context.device.allocator().keep_history();
  beam_search(Transformer(kNeoX), {1, 2, 3}, 2, 4);
  int64_t caches = 0;
  for (const MemoryEvent& e : context.device.allocator().history())
    if (e.action == Action::Alloc && e.name == "kv_cache.h.0") {
      EXPECT_EQ(e.shape[0], 4) << "a cache needs no place for the last token, which is never read";
      ++caches;
    }
  EXPECT_EQ(caches, 2) << "two caches are made: for the prompt and for the beams";
}

TEST(L04_GenerateOnCpu, WhatCannotBeGeneratedIsRefused) {
  Context context("cpu", 3);
  Transformer model(kGpt);
  randomize(model, 1);
  Rng rng(1, 1);
  const std::vector<int32_t> none, one{1}, many(14, 1);
  const auto both = [&](const char* with, const std::vector<int32_t>& prompt, int64_t tokens) {
    expect_refused(with, [&] { sample(model, prompt, tokens, 1, rng); });
    expect_refused(with, [&] { beam_search(model, prompt, tokens, 2); });
  };
  both("prompt is empty", none, 3);
  both("0 tokens are to be added", one, 0);
  both("-1 tokens are to be added", one, -1);
  both("need a context of 14 + 1 - 1; the model's is 13", many, 1);
  both("need a context of 1 + 14 - 1", one, 14);
  both("after a prompt of 1 need", one, INT64_MAX);
  both("embedding: id 31", {31}, 1);
  for (const int64_t beams : {-1, 0, 32})
    expect_refused("beams; it must be 1 to 31", [&] { beam_search(model, one, 3, beams); });
  for (const double t : {0.0, -1.0, double(NAN)})
    expect_refused("must be above 0", [&] { sample(model, one, 3, t, rng); });
  std::vector<double> weights(31 * 21, 1.0);
  weights[5] = NAN;
  copy_from_host(model.parameters.find("wte.weight").value, weights);
  both("a logit is not finite", one, 3);
}

TEST(L04_GenerateOnMeta, EveryTokenIsEquallyLikely) {
  Context context("meta");
  const Transformer model(kNeoX);  // 29 tokens
  for (const int64_t beams : {1, 3, 29}) {
    const std::vector<Beam> found = beam_search(model, {1, 2}, 4, beams);
    ASSERT_EQ(int64_t(found.size()), beams);
    for (const Beam& b : found) {
      EXPECT_EQ(b.ids.size(), 4u);
      EXPECT_NEAR(b.log_probability, -4 * std::log(29), 1e-12);
    }
  }
  EXPECT_EQ(Beam().log_probability, 0);
  Rng rng(1, 1);
  std::vector<int> count(29);
  for (int i = 0; i < 100; ++i)
    for (const int32_t id : sample(model, {1}, 10, 0.1, rng)) ++count.at(size_t(id));
  for (const int n : count) EXPECT_NEAR(n, 1000.0 / 29, 5 * std::sqrt(1000.0 / 29));
}

}  // namespace
}  // namespace gradus
