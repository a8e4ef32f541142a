// All kinds of models on ranks (src/parallel/tensor_parallel.h): losses, all gradients, their norm and the
// weights after a step are those of one device.
#include "src/nn/kv_cache.h"
#include "tests/parallel/tensor_parallel_model.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L19_TensorParallel, Gpt) {
  expect_equals_one_device({"GPT", gpt()});
  expect_equals_one_device({"GPT with dropout", gpt(0.1)});
  expect_equals_one_device({.name = "GPT, one sequence", .model = gpt(0.1), .B = 1});
  expect_equals_one_device({.name = "GPT, shorter than its context", .model = gpt(0.1), .B = 3, .T = 4});
  TransformerConfig flash = gpt(0.2);
  flash.attention = attention_flash;
  expect_equals_one_device({"GPT, attention_flash", flash});
}

TEST(L19_TensorParallel, Bert) {
  expect_equals_one_device({"BERT", bert()});
  expect_equals_one_device({"BERT with dropout", bert(0.1)});
  expect_equals_one_device({.name = "BERT, a label that does not count",
                            .model = bert(0.1),
                            .B = 3,
                            .some_do_not_count = true,
                            .with_count = true});
  expect_equals_one_device({"BERT without labels", bert(0, 0)});
  expect_equals_one_device({"BERT without labels, with dropout", bert(0.1, 0)});
  TransformerConfig tokens = bert(0.1, 0);
  tokens.output_head = OutputHead::Tied;
  expect_equals_one_device({"PostNorm with logits for tokens", tokens});
}

TEST(L19_TensorParallel, Neox) {
  expect_equals_one_device({"GPT-NeoX", neox()});
  expect_equals_one_device({"GPT-NeoX with dropout", neox(0.1)});
  expect_equals_one_device({.name = "GPT-NeoX, shorter than its context", .model = neox(0.1), .T = 4});
}

TEST(L19_TensorParallel, TargetsThatDoNotCount) {
  for (const bool with_count : {false, true})
    for (const TransformerConfig& c : {gpt(), neox(0.1)})
      expect_equals_one_device({.name = with_count ? "-1 and count" : "-1",
                                .model = c,
                                .some_do_not_count = true,
                                .with_count = with_count});
}

TEST(L19_TensorParallel, VocabulariesThatRanksDoNotDivide) {
  for (const int64_t vocab : {4, 29, 31}) {
    expect_equals_one_device({"GPT, vocabulary " + std::to_string(vocab), gpt(0.1, vocab)}, {2, 4});
    TransformerConfig untied = neox();
    untied.vocab = vocab;
    expect_equals_one_device({"GPT-NeoX, vocabulary " + std::to_string(vocab), untied}, {4});
  }
}

TEST(L19_TensorParallel, ThreeRanks) {
  TransformerConfig c = gpt(0.1, 31);
  c.heads = 3, c.channels = 12;
  expect_equals_one_device({.name = "GPT, 3 heads", .model = c, .T = 6}, {3});
  c.heads = 6;
  expect_equals_one_device({.name = "GPT, 6 heads", .model = c, .T = 6}, {3});
}

TEST(L19_TensorParallel, TwoMicroBatches) {
  for (const TransformerConfig& c : {gpt(0.1), bert(0.1), neox(0.1)})
    expect_equals_one_device(
        {.name = "two micro-batches", .model = c, .B = 4, .micro_batches = 2, .some_do_not_count = true});
}

TEST(L19_TensorParallel, ClippedGradients) {
  for (const TransformerConfig& c : {gpt(), bert(0.1), neox()})
    expect_equals_one_device({.name = "clipped", .model = c, .max_norm = 0.01});
}

TEST(L19_TensorParallel, CheckpointedSegments) {
  for (TransformerConfig c : {gpt(0.1), bert(0.1), neox(0.1)}) {
    c.layers = 3;
    expect_equals_one_device({.name = "Input", .model = c, .segments = {{2, Keep::Input}, {1, Keep::Input}}},
                             {1, 2});
    expect_equals_one_device({.name = "LessAttention", .model = c, .segments = {{3, Keep::LessAttention}}},
                             {1, 2});
    expect_equals_one_device({.name = "all three",
                              .model = c,
                              .segments = {{1, Keep::LessAttention}, {1, Keep::All}, {1, Keep::Input}}},
                             {1, 4});
    expect_equals_one_device({.name = "from the start", .model = c, .from_the_start = true}, {1, 2});
  }
}

// Values are rounded in different places than on one device, to 8 bits of mantissa in bf16. One rank rounds
// like one device, except in BERT, whose blocks read x twice: there a product's gradient is rounded before it
// is added to the other one.
TEST(L19_TensorParallel, MixedPrecision) {
  for (TransformerConfig c : {gpt(0.1, 31), bert(0.1), neox(0.1)}) {
    const bool is_bert = c.residual == Residual::PostNorm;
    const std::vector<int64_t> ranks = is_bert ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{1, 2, 4};
    c.precision = precision_recipe("mixed");
    expect_equals_one_device({.name = "mixed", .model = c}, ranks, {0.02, 0.05});
    c.precision = precision_recipe("mixed-fp16");
    expect_equals_one_device({.name = "mixed-fp16", .model = c}, ranks, {0.004, 0.01});
  }
}

TEST(L19_TensorParallel, OnTheEmulatedGpu) {
  TransformerConfig g = gpt(0.1, 31), b = bert(0.1);
  for (TransformerConfig* c : {&g, &b}) {
    c->layers = 1;
    expect_equals_one_device({.name = "on emu", .model = *c, .T = 4, .device = "emu"}, {2});
  }
}

TEST(L19_TensorParallel, FrozenParameters) {
  for (const TransformerConfig& c : {gpt(0.1), bert(0.1), neox(0.1)})
    expect_equals_one_device({.name = "frozen",
                              .model = c,
                              .frozen = {"h.0.ln_1.weight", "h.1.ln_2.bias", "h.1.attn.c_proj.bias",
                                         "h.0.mlp.c_fc.weight", "wte.weight"}},
                             {1, 2});
}

// Computed as on one device, or rejected with a message that names loss_rows.
TEST(L19_TensorParallel, LogitsOfSomeRowsAtATime) {
  TransformerConfig c = gpt(0.1, 31);
  c.loss_rows = 5;
  const std::string text = refusal([&] { expect_equals_one_device({"loss_rows", c}, {2}); });
  EXPECT_TRUE(text.empty() || text.find("loss_rows") != std::string::npos) << text;
}

// Without a tape there is no dropout, and nothing is recorded.
TEST(L19_TensorParallel, Evaluation) {
  const ModelSetting set{"GPT", gpt(0.5)};
  const auto evaluate = [&](const Transformer& model) {
    const Evaluation evaluation;
    const HostBatch b = batch_of(set);
    return item(model.loss(rows_of(b.ids, 0, set.B, set.T), rows_of(b.targets, 0, set.B, set.T)));
  };
  double plain = 0;
  {
    Context context("cpu", 7);
    Transformer model(set.model);
    model.initialize(3);
    plain = evaluate(model);
  }
  for (const Sequence sequence : kSequences)
    run_cluster({.ranks = 4, .seed = 7}, [&](Comm& comm) {
      const ModelOfRanks m(comm, set.model, sequence);
      EXPECT_NEAR(evaluate(m.model), plain, 1e-6) << text_of(sequence);
      EXPECT_EQ(current().device.meter().now()[Kind::Activation], 0);
    });
}

// logits() and next_logits() return (B,T,V) and (B,V) as on one device, or are rejected: they never silently
// return only some tokens of a batch or a part of the vocabulary.
TEST(L19_TensorParallel, LogitsAreWhole) {
  for (const TransformerConfig& c : {gpt(0, 31), neox()}) {
    const ModelSetting set{"logits", c};
    const auto compute = [&](const Transformer& model, bool next) {
      const Evaluation evaluation;
      const Tensor ids = rows_of(batch_of(set).ids, 0, set.B, set.T);
      KvCache cache(model, set.B, set.T);
      return to_host<double>(next ? model.next_logits(ids, cache) : model.logits(ids));
    };
    for (const bool next : {false, true}) {
      Values plain;
      {
        Context context("cpu", 7);
        Transformer model(c);
        model.initialize(3);
        plain = compute(model, next);
      }
      for (const Sequence sequence : kSequences)
        run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
          const ModelOfRanks m(comm, c, sequence);
          Values ours;
          if (!refusal([&] { ours = compute(m.model, next); }).empty()) return;
          ASSERT_EQ(ours.size(), plain.size()) << (next ? "next_logits, " : "logits, ") << text_of(sequence);
          for (size_t i = 0; i < plain.size(); ++i) ASSERT_NEAR(ours[i], plain[i], 1e-5) << text_of(sequence);
        });
    }
  }
}

}  // namespace
}  // namespace gradus
