// Pipelines of several models, precisions and recomputations (src/parallel/pipeline.h): loss and gradients
// are bitwise equal to accumulation on one device.
#include "tests/parallel/pipeline_testing.h"

namespace gradus {
namespace {

std::vector<Schedule> schedules_of(int64_t p, int64_t v, int64_t m) {
  if (v > 1) return {interleaved(p, m, v)};
  return {gpipe(p, m), one_forward_one_backward(p, m)};
}

struct PipelineCase {
  std::string name;
  TransformerConfig model;
  std::function<void(Transformer&)> prepare = [](Transformer&) {};
  std::function<void(std::vector<TextBatch>&)> change = [](std::vector<TextBatch>&) {};
  std::vector<std::pair<int64_t, int64_t>> ranks_and_chunks = {{2, 1}, {2, 2}, {4, 1}};
  std::vector<int64_t> micro_batches = {4};
  std::string device = "cpu";
};

void expect_as_on_one_device(const PipelineCase& set) {
  for (const int64_t m : set.micro_batches) {
    std::vector<TextBatch> batches = random_micro_batches(set.model, m);
    set.change(batches);
    const int64_t targets = counted_targets(batches);
    const PipelineReference expected = on_one_device(set.model, batches, targets, set.device);
    for (const auto& [p, v] : set.ranks_and_chunks)
      for (const Schedule& s : schedules_of(p, v, m))
        run_cluster({.ranks = p, .device = set.device, .seed = 7}, [&](Comm& comm) {
          PipelinePart part(comm, set.model, s.chunks);
          set.prepare(part.model);
          const double loss = part.pipeline.run(s, batches, targets);
          part.pipeline.sum_tied_gradients();
          expect_part(comm, part.model, loss, expected, set.name + ", " + set.device + "\n" + text_of(s));
        });
  }
}

TransformerConfig with(TransformerConfig c, const std::function<void(TransformerConfig&)>& change) {
  change(c);
  return c;
}

TEST(L20_PipelineModels, GptWithATiedEmbedding) {
  for (const double dropout : {0.0, 0.2})
    expect_as_on_one_device({.name = "GPT",
                             .model = small_gpt(4, dropout),
                             .ranks_and_chunks = {{2, 1}, {4, 1}, {3, 1}},
                             .micro_batches = {1, 2, 3, 4, 8}});
}
TEST(L20_PipelineModels, NeoxUntiedRotaryParallelWithDropout) {
  expect_as_on_one_device({.name = "GPT-NeoX", .model = small_neox(4, 0.2), .micro_batches = {4, 8}});
}
TEST(L20_PipelineModels, OtherNormsMasksHeadsAndAttention) {
  const TransformerConfig c = small_gpt();
  expect_as_on_one_device(
      {.name = "post-norm, no mask",
       .model = with(c, [](TransformerConfig& x) { x.residual = Residual::PostNorm, x.mask = Mask::None; })});
  expect_as_on_one_device({.name = "post-norm, untied", .model = with(c, [](TransformerConfig& x) {
                                                          x.residual = Residual::PostNorm,
                                                          x.output_head = OutputHead::Untied;
                                                        })});
  expect_as_on_one_device({.name = "parallel, tied, learned positions",
                           .model = with(c, [](TransformerConfig& x) { x.residual = Residual::Parallel; })});
  expect_as_on_one_device({.name = "flash attention",
                           .model = with(c, [](TransformerConfig& x) { x.attention = attention_flash; })});
  expect_as_on_one_device(
      {.name = "rows of the loss", .model = with(c, [](TransformerConfig& x) { x.loss_rows = 5; })});
}
TEST(L20_PipelineModels, SixteenBitPrecisions) {
  for (const char* recipe : {"mixed", "mixed-fp16", "zero", "half"})
    for (const TransformerConfig& c : {small_gpt(), small_neox()})
      expect_as_on_one_device({.name = recipe, .model = with(c, [&](TransformerConfig& x) {
                                                 x.precision = precision_recipe(recipe);
                                               })});
  expect_as_on_one_device({.name = "bf16", .model = with(small_gpt(), [](TransformerConfig& x) {
                                             x.precision = uniform(DType::BF16);
                                           })});
}
TEST(L20_PipelineModels, OnEmu) {
  TransformerConfig c = small_gpt(4, 0.1);
  c.vocab = 7, c.context = 3, c.channels = 4;
  expect_as_on_one_device({.name = "GPT",
                           .model = c,
                           .ranks_and_chunks = {{2, 2}, {4, 1}},
                           .micro_batches = {4},
                           .device = "emu"});
  c.precision = precision_recipe("mixed");
  expect_as_on_one_device(
      {.name = "mixed", .model = c, .ranks_and_chunks = {{2, 2}}, .micro_batches = {2}, .device = "emu"});
}
TEST(L20_PipelineModels, TargetsThatDoNotCount) {
  expect_as_on_one_device({.name = "some", .model = small_gpt(), .change = [](std::vector<TextBatch>& all) {
                             for (size_t b = 0; b < all.size(); ++b)
                               for (size_t i = b; i < all[b].targets.size(); i += 2 + b)
                                 all[b].targets[i] = -1;
                           }});
  expect_as_on_one_device({.name = "a micro-batch of which none counts",
                           .model = small_gpt(),
                           .change = [](std::vector<TextBatch>& all) {
                             std::fill(all[1].targets.begin(), all[1].targets.end(), -1);
                           }});
}
TEST(L20_PipelineModels, SequencesThatAreShorterThanTheContext) {
  expect_as_on_one_device({.name = "short", .model = small_gpt(), .change = [](std::vector<TextBatch>& all) {
                             for (TextBatch& b : all)
                               b.T = 5, b.ids.resize(size_t(5 * b.sequences)), b.targets = b.ids;
                           }});
}
TEST(L20_PipelineModels, SamplesKeepTheMasksOfTheirPlaceInTheBatch) {
  expect_as_on_one_device(
      {.name = "any places", .model = small_gpt(4, 0.3), .change = [](std::vector<TextBatch>& all) {
         for (size_t b = 0; b < all.size(); ++b) all[b].first_sample = int64_t(40 - 7 * b);
       }});
}

// ---- recomputation: results are bitwise equal for every choice of saved tensors ----

TEST(L20_PipelineModels, RecomputationOfEveryKind) {
  const auto each = [](Keep keep) {
    return [=](Transformer& m) { m.segments.assign(m.blocks.size(), {1, keep}); };
  };
  for (const TransformerConfig& c : {small_gpt(), small_neox()})
    for (const Keep keep : {Keep::All, Keep::LessAttention, Keep::Input})
      expect_as_on_one_device(
          {.name = "blocks by themselves, " + std::to_string(int(keep)), .model = c, .prepare = each(keep)});
  const auto two = [](Transformer& m) { m.segments = {{2, Keep::Input}, {2, Keep::LessAttention}}; };
  expect_as_on_one_device(
      {.name = "two by two", .model = small_gpt(8), .prepare = two, .ranks_and_chunks = {{2, 1}, {2, 2}}});
  const auto mixed = [](Transformer& m) {
    m.segments = {{1, Keep::All}, {2, Keep::Input}, {1, Keep::LessAttention}};
  };
  expect_as_on_one_device({.name = "of different lengths",
                           .model = small_gpt(8),
                           .prepare = mixed,
                           .ranks_and_chunks = {{2, 1}}});
}
TEST(L20_PipelineModels, RecomputationFromTheFirstBlockOfARange) {
  const auto start = [](Transformer& m) { m.from_the_start = true; };
  expect_as_on_one_device({.name = "from the start",
                           .model = small_gpt(8),
                           .prepare = start,
                           .ranks_and_chunks = {{2, 1}, {2, 2}}});
}

// ---- more than one run ----

TEST(L20_PipelineRuns, TwoRunsBeforeAnUpdateAddTheirGradients) {
  for (const TransformerConfig& c : {small_gpt(), small_neox()}) {
    const std::vector<TextBatch> a = random_micro_batches(c, 4), b = random_micro_batches(c, 2, 2, 12, 8);
    std::vector<TextBatch> both = a;
    both.insert(both.end(), b.begin(), b.end());
    const int64_t targets = counted_targets(both);
    const PipelineReference expected = on_one_device(c, both, targets);
    for (const int64_t v : {1, 2})
      run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
        PipelinePart part(comm, c, 2 * v);
        const double first = part.pipeline.run(interleaved(2, 4, v), a, targets);
        const double second = part.pipeline.run(interleaved(2, 2, v), b, targets);
        part.pipeline.sum_tied_gradients();
        EXPECT_NEAR(first + second, comm.rank() == 1 ? expected.loss : 0, 1e-12);
        expect_part(comm, part.model, comm.rank() == 1 ? expected.loss : 0, expected, "two runs");
      });
  }
}

TEST(L20_PipelineRuns, AStepAfterZeroGradStartsAnew) {
  const TransformerConfig c = small_gpt();
  const std::vector<TextBatch> a = random_micro_batches(c, 4), b = random_micro_batches(c, 4, 2, 12);
  const PipelineReference expected = on_one_device(c, b, counted_targets(b));
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    PipelinePart part(comm, c, 2);
    part.pipeline.run(gpipe(2, 4), a, counted_targets(a));
    part.pipeline.sum_tied_gradients();
    part.model.parameters.zero_grad();
    const double loss = part.pipeline.run(one_forward_one_backward(2, 4), b, counted_targets(b));
    part.pipeline.sum_tied_gradients();
    expect_part(comm, part.model, loss, expected, "second step");
  });
}

TEST(L20_PipelineRuns, TwoPipelinesInterleavedDoNotDisturbEachOther) {
  const TransformerConfig c = small_gpt(), d = small_neox();
  const std::vector<TextBatch> a = random_micro_batches(c, 4), b = random_micro_batches(d, 2, 3, 12),
                               more = random_micro_batches(c, 2, 2, 13, 8);
  std::vector<TextBatch> both = a;
  both.insert(both.end(), more.begin(), more.end());
  const int64_t of_c = counted_targets(both), of_d = counted_targets(b);
  const PipelineReference first = on_one_device(c, both, of_c), second = on_one_device(d, b, of_d);
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    PipelinePart one(comm, c, 4), two(comm, d, 2);
    one.pipeline.run(interleaved(2, 4, 2), a, of_c);
    const double loss = two.pipeline.run(gpipe(2, 2), b, of_d);
    one.pipeline.run(interleaved(2, 2, 2), more, of_c);
    two.pipeline.sum_tied_gradients(), one.pipeline.sum_tied_gradients();
    expect_part(comm, two.model, loss, second, "GPT-NeoX");
    expect_part(comm, one.model, comm.rank() == 1 ? first.loss : 0, first, "GPT");
  });
}

// The last micro-batch first, as in the paper: then its gradient is the first one that is added.
TEST(L20_PipelineRuns, BackwardInAnotherOrderAddsInThatOrder) {
  const TransformerConfig c = small_neox();
  const std::vector<TextBatch> batches = random_micro_batches(c, 3);
  const std::vector<TextBatch> reversed(batches.rbegin(), batches.rend());
  const int64_t targets = counted_targets(batches);
  const PipelineReference expected = on_one_device(c, reversed, targets);
  const Schedule s = schedule_of_text("F0 F1 F2 B2 B1 B0\nF0 F1 F2 B2 B1 B0\n");
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    PipelinePart part(comm, c, 2);
    const double loss = part.pipeline.run(s, batches, targets);
    EXPECT_NEAR(loss, comm.rank() == 1 ? expected.loss : 0, 1e-9);
    expect_part(comm, part.model, comm.rank() == 1 ? expected.loss : 0, expected, "reversed");
  });
}

// Tasks begin and end at different times, and messages of one rank overtake other ranks' tasks.
TEST(L20_PipelineRuns, ASlowNetworkAndUnequalTimesChangeNoBit) {
  const TransformerConfig c = small_gpt(6);
  const std::vector<TextBatch> batches = random_micro_batches(c, 6);
  const int64_t targets = counted_targets(batches);
  const PipelineReference expected = on_one_device(c, batches, targets);
  const Network slow{.name = "", .source = "", .link = {.latency = 1e-3, .bandwidth = 1e6}};
  run_cluster({.ranks = 3, .seed = 7, .network = slow}, [&](Comm& comm) {
    PipelinePart part(comm, c, 6);
    const double loss = part.pipeline.run(interleaved(3, 6, 2), batches, targets);
    part.pipeline.sum_tied_gradients();
    expect_part(comm, part.model, loss, expected, "slow");
  });
}

}  // namespace
}  // namespace gradus
