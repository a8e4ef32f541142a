// Llama-shaped models and mixtures of experts with tensor, pipeline and context parallelism.
#include "src/nn/lora.h"
#include "src/parallel/context_parallel.h"
#include "src/parallel/layout.h"
#include "tests/parallel/mixture_on_ranks.h"
#include "tests/parallel/pipeline_testing.h"
#include "tests/parallel/tensor_parallel_model.h"

namespace gradus {
namespace {

TransformerConfig with(TransformerConfig c, const std::function<void(TransformerConfig&)>& change) {
  change(c);
  return c;
}
TransformerConfig balanced(TransformerConfig c, double balance) {
  c.balance = balance;
  return c;
}

// ---- tensor parallelism ----

TEST(L21_LlamaRanks, TensorParallel) {
  for (const double dropout : {0.0, 0.1}) {
    expect_equals_one_device({"Llama", llama(4, dropout)});
    expect_equals_one_device({"Llama, kv_heads 0", llama(0, dropout)});
  }
  expect_equals_one_device({.name = "Llama, shorter than its context", .model = llama(4, 0.1), .T = 4});
  expect_equals_one_device(
      {.name = "Llama, 6 heads and a vocabulary of 31",
       .model = with(llama(6, 0.1), [](TransformerConfig& c) { c.heads = 6, c.channels = 24, c.vocab = 31; }),
       .T = 6},
      {3});
  expect_equals_one_device({.name = "Llama, flash attention",
                            .model = with(llama(4), [](auto& c) { c.attention = attention_flash; })});
}
// A rank has rows of both halves of the MLP's first product, and 24 or 25 neurons are not a multiple of 4.
TEST(L21_LlamaRanks, TensorParallelMlpsOfAnyWidth) {
  for (const int64_t width : {7, 24, 25})
    expect_equals_one_device({"Llama, " + std::to_string(width) + " neurons",
                              with(llama(4), [&](TransformerConfig& c) { c.mlp_channels = width; })});
  expect_equals_one_device(
      {"GELU and no biases", with(llama(4), [](TransformerConfig& c) { c.activation = gelu; })});
  expect_equals_one_device(
      {"SwiGLU with biases", with(llama(4), [](TransformerConfig& c) { c.biases = true; })});
  expect_equals_one_device(
      {"layer norms", with(llama(4), [](TransformerConfig& c) { c.norm = NormKind::Layer; })});
  expect_equals_one_device(
      {"post-norm", with(llama(4), [](TransformerConfig& c) { c.residual = Residual::PostNorm; })});
  expect_equals_one_device(
      {"parallel", with(llama(4), [](TransformerConfig& c) { c.residual = Residual::Parallel; })});
}
TEST(L21_LlamaRanks, TensorParallelTrainingSettings) {
  const TransformerConfig c = llama(4, 0.1);
  expect_equals_one_device({.name = "two micro-batches, clipped",
                            .model = c,
                            .B = 4,
                            .micro_batches = 2,
                            .some_do_not_count = true,
                            .max_norm = 0.01});
  expect_equals_one_device(
      {.name = "recomputed", .model = c, .segments = {{1, Keep::Input}, {1, Keep::LessAttention}}}, {1, 2});
  expect_equals_one_device(
      {.name = "frozen", .model = c, .frozen = {"h.0.ln_1.weight", "h.1.mlp.c_fc.weight", "lm_head.weight"}},
      {2});
  expect_equals_one_device({.name = "on emu",
                            .model = with(c, [](TransformerConfig& x) { x.layers = 1; }),
                            .T = 4,
                            .device = "emu"},
                           {2});
  expect_equals_one_device(
      {"mixed", with(c, [](TransformerConfig& x) { x.precision = precision_recipe("mixed"); })}, {2, 4},
      {0.02, 0.05});
}

// A rejected model is unchanged.
TEST(L21_LlamaRanks, TensorParallelRefusesGroupsAndExperts) {
  const std::string text =
      "tensor parallel: heads that share keys and values, and experts, cannot be divided; set kv_heads "
      "and "
      "experts to 0";
  for (const TransformerConfig& c :
       {llama(2), llama(1), mixtral(), with(mixtral(), [](auto& x) { x.kv_heads = 4; })}) {
    const ModelSetting set{.name = "refused", .model = c};
    const Learned alone = learn_on_one_device(set);
    for (const Sequence sequence : kSequences)
      run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
        Transformer model(c);
        model.initialize(3);
        expect_refused(text, [&] { TensorParallel(comm, model, sequence); });
        expect_learned(learn(set, model), alone, model, {0, 0}, "a model that was refused");
        expect_refused(text, [&] { RankModel(comm, {.tensor = 2}, c, {2}, sequence); });
      });
  }
}

// ---- pipelines ----

// Loss and gradients are bitwise equal to accumulation on one device.
void expect_pipelined(
    const std::string& name, const TransformerConfig& c, const std::string& device = "cpu",
    const std::function<void(Transformer&)>& prepare = [](Transformer&) {}) {
  const std::vector<TextBatch> batches = random_micro_batches(c, 4);
  const int64_t targets = counted_targets(batches);
  const PipelineReference expected = on_one_device(c, batches, targets, device);
  for (const Schedule& s : {gpipe(2, 4), one_forward_one_backward(4, 4), interleaved(2, 4, 2)})
    run_cluster({.ranks = s.ranks(), .device = device, .seed = 7}, [&](Comm& comm) {
      PipelinePart part(comm, c, s.chunks);
      prepare(part.model);
      const double loss = part.pipeline.run(s, batches, targets);
      part.pipeline.sum_tied_gradients();
      expect_part(comm, part.model, loss, expected, name + ", " + device + "\n" + text_of(s));
    });
}
TransformerConfig of_four_blocks(TransformerConfig c) {
  c.layers = 4;
  return c;
}

TEST(L21_LlamaRanks, Pipeline) {
  for (const int64_t kv_heads : {1, 2, 4}) expect_pipelined("Llama", of_four_blocks(llama(kv_heads, 0.1)));
  expect_pipelined("Llama, tied", with(of_four_blocks(llama(2, 0.1)),
                                       [](TransformerConfig& c) { c.output_head = OutputHead::Tied; }));
  expect_pipelined("mixed", with(of_four_blocks(llama(2, 0.1)),
                                 [](TransformerConfig& c) { c.precision = precision_recipe("mixed"); }));
  expect_pipelined("recomputed", of_four_blocks(llama(2, 0.1)), "cpu", [](Transformer& m) {
    m.segments.assign(m.blocks.size(), {1, Keep::Input});
  });
  expect_pipelined(
      "Llama", with(of_four_blocks(llama(2, 0.1)), [](TransformerConfig& c) { c.vocab = 7, c.context = 3; }),
      "emu");
}

TEST(L21_LlamaRanks, PipelineOfAMixtureWithoutABalanceLoss) {
  expect_pipelined("Mixtral", of_four_blocks(balanced(mixtral(0.1), 0)));
  expect_pipelined("GPT of experts", of_four_blocks(balanced(gpt_of_experts(0.1), 0)));
}

TEST(L21_LlamaRanks, PipelineRefusesABalanceLoss) {
  for (const TransformerConfig& c : {mixtral(), balanced(gpt_of_experts(), 1e-9)})
    run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
      Transformer model(c, Allocate::Now, part_of_pipeline({1, 2}, comm.rank(), 2));
      expect_refused(
          "pipeline: the loss is computed on the last rank, but the balance loss needs the routers' logits, "
          "which are on all ranks; set balance to 0",
          [&] { Pipeline(comm, model); });
      const PipelinePart part(comm, balanced(c, 0), 2);
    });
}

// Data and pipeline ranks, with divided optimizer states: losses are those of one device.
TEST(L21_LlamaRanks, Layout) {
  const TransformerConfig c = of_four_blocks(llama(4, 0.1));
  const std::vector<TextBatch> halves = random_micro_batches(c, 4);
  TextBatch batch{8, c.context, {}, {}};
  for (const TextBatch& b : halves) {
    batch.ids.insert(batch.ids.end(), b.ids.begin(), b.ids.end());
    batch.targets.insert(batch.targets.end(), b.targets.begin(), b.targets.end());
  }
  const int64_t targets = batch.counted();
  const PipelineReference expected = on_one_device(c, {batch}, targets);
  for (const Sequence sequence : kSequences)
    run_cluster({.ranks = 8, .seed = 7}, [&](Comm& comm) {
      RankModel m(comm, {.pipeline = 2, .data = 2, .tensor = 2}, c, {2, 4}, sequence);
      m.initialize(3);
      AdamW optimizer(m.zero.shards);
      m.model.parameters.zero_grad();
      const double loss = m.run(one_forward_one_backward(2, 2), m.micro_batches(batch, 2), targets);
      EXPECT_NEAR(loss, expected.loss, 1e-6);
      optimizer.clip_grad_norm(1e9);
      double squares = 0;
      for (const auto& [name, g] : expected.gradients) squares += norm_of(g) * norm_of(g);
      EXPECT_NEAR(optimizer.scalars().grad_norm, std::sqrt(squares), 1e-5 * std::sqrt(squares));
    });
}

// ---- context parallelism ----

// An expert's places are counted per sequence, but a rank has only some of its tokens; and ring attention
// needs as many heads of keys and values as of queries.
TEST(L21_LlamaRanks, ContextParallelRefusesGroupsAndExperts) {
  const std::string text =
      "context parallel: the model has heads that share keys and values, or experts, whose places are "
      "counted "
      "per whole sequence; set kv_heads and experts to 0";
  for (const TransformerConfig& c :
       {with(gpt(), [](TransformerConfig& x) { x.kv_heads = 2; }), gpt_of_experts()}) {
    const ModelSetting set{.name = "refused", .model = c};
    const Learned alone = learn_on_one_device(set);
    run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
      Transformer model(c);
      model.initialize(3);
      expect_refused(text, [&] { share_context(comm, model); });
      expect_learned(learn(set, model), alone, model, {0, 0}, "a model that was refused");
    });
  }
}

// ---- adapters ----

// Ranks that divide a layer already replace its product, so an adapter or codes cannot replace it, too.
TEST(L21_LlamaRanks, AdaptersAndCodesAreForWholeModels) {
  const std::string text =
      "lora: the model is sharded over ranks; adapters and weights in 4 bits need a whole model";
  for (const int64_t ranks : {1, 2})
    run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
      ExpertsOfRanks experts(comm, mixtral());
      ModelOfRanks tensor(comm, llama(4), Sequence::Whole);
      for (Transformer* model : {&experts.model, &tensor.model}) {
        const size_t parameters = model->parameters.size();
        expect_refused(text, [&] { add_lora(*model, ".*attn.*", {.r = 2}, 1); });
        model->parameters.set_trainable(model->parameters.find("h.0.attn.c_attn.weight"), false);
        expect_refused(text, [&] { quantize_frozen(*model); });
        expect_refused("no adapter", [&] { merge_lora(*model); });
        EXPECT_EQ(model->parameters.size(), parameters);
        EXPECT_FALSE(model->parameters.find("h.0.attn.c_attn.weight").codes);
      }
    });
}

// Otherwise ranks would replace adapters silently.
TEST(L21_LlamaRanks, ModelsWithAdaptersAreNotSharedOut) {
  const auto expect_both = [](Comm& comm, Transformer& model, const std::string& text) {
    if (model.config.experts > 0)
      expect_refused("expert parallel: " + text, [&] { ExpertParallel(comm, model); });
    else
      expect_refused("tensor parallel: " + text, [&] { TensorParallel(comm, model); });
    for (const Parameter& p : model.parameters) EXPECT_FALSE(p.shard) << p.name;
  };
  for (const TransformerConfig& c : {llama(4), mixtral()})
    run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
      Transformer model(c);
      model.initialize(3);
      add_lora(model, "h.1.attn.*", {.r = 2}, 1);
      expect_both(comm, model,
                  "h.1.attn.c_attn has an adapter or a weight in 4 bits; ranks divide models without them");
      EXPECT_EQ(std::ranges::count_if(model.linears(), [](const Linear* l) { return adapter_of(*l); }), 2);
      Transformer of_zero(c, Allocate::Later);
      const Zero zero(comm, of_zero.parameters, {.stage = 1});
      expect_both(comm, of_zero, "the model is divided already");
    });
}

}  // namespace
}  // namespace gradus
