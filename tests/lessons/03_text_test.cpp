// The text of lesson 03: the entropy floor, the held-out loss and sampled text, compared with straightforward
// computations. And the checks of lesson 03.
#include <gtest/gtest.h>

#include <cmath>

#include "lessons/03_transformer/checks.h"
#include "src/tensor/context.h"
#include "src/train/text.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

struct L03_Text : ::testing::Test {
  Context context{"cpu", 3};
  Text text = load_text("", 1000, 5);
  Transformer model{{.vocab = ByteTokenizer::kVocabulary,
                     .context = 9,
                     .layers = 1,
                     .heads = 2,
                     .channels = 16,
                     .dropout = 0.5}};  // must change neither the held-out loss nor sampled text

  L03_Text() {
    model.initialize(4);
    // Large weights: the probabilities of bytes differ, and depend on the bytes before.
    for (const char* name : {"wte.weight", "h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight"}) {
      Parameter& p = model.parameters.find(name);
      std::vector<double> values = to_host<double>(p.value);
      for (double& v : values) v *= 30;
      p.assign(values);
    }
  }
  // -log p of each byte that can follow `ids`.
  std::vector<double> nats(const std::vector<int32_t>& ids) {
    const Evaluation evaluation;
    const int64_t T = int64_t(ids.size()), V = model.config.vocab;
    const std::vector<double> logits =
        to_host<double>(model.logits(from_host(context.device, ids, {1, T}, DType::I32, Kind::Data, "ids")));
    std::vector<double> last(logits.end() - V, logits.end());
    double sum = 0;
    for (const double x : last) sum += std::exp(x);
    for (double& x : last) x = std::log(sum) - x;
    return last;
  }
};

TEST_F(L03_Text, TheFloorIsNearTheGrammarsEntropy) {
  const Text longer = load_text("", 100'000, 5);
  const Grammar grammar = Grammar::parse(read_text_file(find_data_file("steps.grammar")));
  EXPECT_NEAR(*longer.floor, grammar.entropy_rate(), 0.1 * grammar.entropy_rate());
  for (const Text* t : {&longer, static_cast<const Text*>(&text)}) {  // exactly that of the held-out text
    const std::string_view held_out = t->corpus.held_out();
    EXPECT_DOUBLE_EQ(*t->floor, -grammar.log_probability(held_out) / double(held_out.size()));
  }
  EXPECT_NE(load_text("", 1000, 6).corpus.bytes, text.corpus.bytes) << "different seeds give different texts";
}

TEST_F(L03_Text, TheHeldOutLossScoresEachByteOnceWithItsContext) {
  const Loader loader(text.corpus, model.config.context, 1);
  const int64_t T = model.config.context, end = int64_t(text.corpus.bytes.size());
  double total = 0;
  for (int64_t from = text.corpus.split; from < end; from += T - T / 2) {  // the bytes that a window scores
    const int64_t to = std::min(from + T - T / 2, end), first = to - 1 - T;
    for (int64_t at = from; at < to; ++at) {
      std::vector<int32_t> before;
      for (int64_t i = first; i < at; ++i) before.push_back(uint8_t(text.corpus.bytes[i]));
      total += nats(before)[uint8_t(text.corpus.bytes[at])];
    }
  }
  const double expected = total / double(end - text.corpus.split);
  for (const int64_t batch : {1, 4})
    EXPECT_NEAR(held_out_loss(model, loader, batch), expected, 1e-5 * expected);
}

TEST_F(L03_Text, AtTemperatureNearZeroTheMostProbableByteIsSampled) {
  std::vector<int32_t> ids = ByteTokenizer::encode("The cook");
  for (int i = 0; i < 12; ++i) {  // longer than the context
    const std::vector<int32_t> window(
        ids.end() - std::min<int64_t>(model.config.context, int64_t(ids.size())), ids.end());
    const std::vector<double> next = nats(window);
    ids.push_back(int32_t(std::min_element(next.begin(), next.end()) - next.begin()));
  }
  EXPECT_EQ(sample_text(model, "The cook", 12, 1e-4, 7), ByteTokenizer::decode(ids));
}

// A run of 3000 steps with 10 parameters, whose numbers the tests change.
struct L03_Checks : ::testing::Test {
  Context context;
  StepRecorder run;
  TrainedGpt trained{run, 10, 40, 1.02, 1.0, true};
  L03_Checks() {
    run.losses.assign(3000, 4), run.requests.assign(3000, 7);
    run.losses[0] = 5, run.requests[0] = 3;
    run.peak.by_kind[int(Kind::Weight)] = 40, run.peak.by_kind[int(Kind::Optimizer)] = 80;
  }
  Names failed() {
    return failed_checks([&](Report& r) { check_trained(trained, r); });
  }
};

TEST_F(L03_Checks, HoldAndEachFailsOnAWrongValue) {
  EXPECT_EQ(failed(), Names{});
  for (const int64_t off : {-4, 4}) {
    run.peak.by_kind[int(Kind::Weight)] += off;
    EXPECT_EQ(failed(), Names{"bytes of weights, 4 per parameter"});
    run.peak.by_kind[int(Kind::Weight)] = 40, trained.gradient_bytes += off;
    EXPECT_EQ(failed(), Names{"bytes of gradients, 4 per parameter"});
    trained.gradient_bytes = 40, run.peak.by_kind[int(Kind::Optimizer)] += off;
    EXPECT_EQ(failed(), Names{"bytes of AdamW's states, 8 per parameter"});
    run.peak.by_kind[int(Kind::Optimizer)] = 80;
  }
  run.requests.back() = 8;
  EXPECT_EQ(failed(), Names{"device allocations after step 2"});
  run.requests.back() = 7, run.losses.back() = 56;  // the mean of the last 50 is 5.04
  EXPECT_EQ(failed(), Names{"last loss; bound: first loss"});
  run.losses.back() = 4, trained.held_out = 0.98;
  EXPECT_EQ(failed(), Names{"held-out loss / entropy floor, lower bound (1 % for chance)"});
  trained.held_out = 1.06;
  EXPECT_EQ(failed(), Names{"held-out loss / entropy floor, upper bound"});
  trained.nears_floor = false;
  EXPECT_EQ(failed(), Names{});
  trained.held_out = 0.98;
  EXPECT_EQ(failed(), Names{"held-out loss / entropy floor, lower bound (1 % for chance)"});
  trained.floor = std::nullopt;  // not known for other texts
  EXPECT_EQ(failed(), Names{});
}

TEST_F(L03_Checks, AreSkippedIfThereAreTooFewSteps) {
  run.losses[0] = 3, trained.held_out = 2;  // the loss rose and is far above the floor
  run.losses.resize(20), run.requests.resize(20);
  EXPECT_EQ(failed(), Names{"last loss; bound: first loss"});
  run.losses.resize(19), run.requests.resize(2);
  EXPECT_EQ(failed(), Names{});
  run.losses.resize(1), run.requests.resize(1);
  EXPECT_EQ(failed(), Names{});
}

}  // namespace
}  // namespace gradus
