// Some lessons train on dummy tokens, on a text of their own, or for a long time. Here the functions of these
// lessons train on the trainer's text, and their losses are bitwise equal to those of the trainer.
#include "lessons/08_checkpointing/policies.h"
#include "lessons/12_lora/adapt.h"
#include "lessons/20_pipeline_parallel/alone.h"
#include "lessons/20_pipeline_parallel/choices.h"
#include "lessons/21_mixture_of_experts/runs.h"
#include "tests/folder_testing.h"
#include "tests/lessons/22_testing.h"

namespace gradus {
namespace {

constexpr int64_t kSteps = 6;
const std::string kFlags = "--lr=0.001 --last-lr=0.001 --warmup=0 ";

struct L22_SameSteps : FolderTest {
  // The training loop of lessons 08, 12, 15 and 21.
  static std::vector<double> lesson(const TrainSettings& s, Transformer& model, double learning_rate = 1e-3) {
    const Text text = text_of(s);
    const Loader loader(text.corpus, model.config.context, uint64_t(s.seed));
    AdamW optimizer(model.parameters);
    Tensor inputs(current().device, {s.batch, model.config.context}, DType::I32, Kind::Data, "inputs"),
        targets(current().device, {s.batch, model.config.context}, DType::I32, Kind::Data, "targets");
    std::vector<double> losses;
    for (int64_t step = 0; step < kSteps; ++step) {
      read_batch(loader, step, inputs, targets);
      Tape tape;
      const Tensor loss = model.loss(inputs, targets);
      losses.push_back(item(loss));
      model.parameters.zero_grad();
      tape.backward(loss);
      optimizer.clip_grad_norm(1.0);
      optimizer.step(learning_rate);
    }
    return losses;
  }
  static std::vector<double> trainer(const std::string& flags) {
    return train(settings_with(kFlags + flags), {kSteps, ""});
  }
  static TransformerConfig tiny() { return transformer_config("gpt-2x16x2"); }
};

TEST_F(L22_SameSteps, EachPolicyOfLesson08) {
  const std::string flags = "--dropout=0.1 --model=gpt-4x16x2 ";
  for (const Policy& policy : policies(4)) {
    const Context context("cpu", 1);
    TransformerConfig config = transformer_config("gpt-4x16x2");
    config.vocab = 256, config.context = 16, config.dropout = 0.1;
    Transformer model(config);
    model.initialize(1);
    policy.apply(model);
    EXPECT_EQ(trainer(flags + "--keep=" + policy.name), lesson(settings_with(flags), model)) << policy.name;
  }
}

TEST_F(L22_SameSteps, FlashAttentionOfLessons15And16) {
  const Context context("cpu", 1);
  TransformerConfig config = tiny();
  config.vocab = 256, config.context = 16, config.attention = attention_flash;
  Transformer model(config);
  model.initialize(1);
  const std::vector<double> losses = lesson(settings_with(""), model);
  EXPECT_EQ(trainer("--attention=flash"), losses);
  EXPECT_EQ(trainer("--attention=flash --calls=captured"), losses);
}

TEST_F(L22_SameSteps, ModelsOfLesson21) {
  const auto [mixture, dense_active, dense_total] = mixture_sizes(true);
  const std::string flags = "--model=gpt-1x16x4 --blocks=llama --kv-heads=2 ";
  for (const auto& [config, more] :
       {std::pair(mixture, "--mlp=16 --experts=8 --capacity=1.25 --balance=0.01"),
        {dense_active, "--mlp=32"},
        {dense_total, "--mlp=128"}}) {
    const Context context("cpu", 1);
    Transformer model(config);
    model.initialize(1);
    EXPECT_EQ(trainer(flags + more), lesson(settings_with(flags), model)) << more;
  }
}

// A base model, and the ways to adapt it to a different text, starting from the file of the base model.
TEST_F(L22_SameSteps, WaysToAdaptOfLesson12) {
  const std::string flags = kFlags + "--head=untied ", other = flags + "--data=orders.grammar ";
  TransformerConfig config = tiny();
  config.vocab = 256, config.context = 16, config.output_head = OutputHead::Untied;
  Weights base;
  {
    const Context context("cpu", 1);
    Transformer model(config);
    model.initialize(1);
    EXPECT_EQ(train(settings_with(flags), {kSteps, path("base")}), lesson(settings_with(flags), model));
    for (const Parameter& p : model.parameters) base.push_back(to_host<double>(p.value));
  }
  const std::map<std::string, std::string> ways{
      {"all weights", ""},
      {"LoRA r 8, c_attn only", "--lora=8 --lora-alpha=16 --adapted=.*c_attn"},
      {"LoRA r 2", "--lora=2 --lora-alpha=4"},
      {"LoRA r 2, bf16", "--lora=2 --lora-alpha=4 --precision=bf16"},
      {"LoRA r 2, NF4", "--lora=2 --lora-alpha=4 --precision=bf16 --frozen=4-bits"}};
  for (const WayToAdapt& way : ways_to_adapt()) {
    if (!ways.contains(way.name)) continue;
    const Context context("cpu", 1);
    const auto model = adapted_model(config, base, way, 1);
    EXPECT_EQ(train(settings_with(other + ways.at(way.name) + " --weights=" + path("base")), {kSteps, ""}),
              lesson(settings_with(other), *model))
        << way.name;
  }
}

ParallelTask task_like(const TransformerConfig& config) {
  return {.model = config, .batch = 8, .steps = kSteps, .seed = 1};
}

TEST_F(L22_SameSteps, DataRanksOfLesson17) {
  const TrainSettings s = settings_with("--dropout=0.1 --batch=8");
  const Text text = text_of(s);
  const Loader loader(text.corpus, 16, 1);
  const Context context("cpu", 1);
  for (const int64_t ranks : {2, 3}) {
    const OneDevice alone = train_on_one_device(loader, task_like(config_of(s)), ranks);
    for (const char* stage : {"0", "1", "2", "3"})
      EXPECT_EQ(
          trainer("--dropout=0.1 --batch=8 --ranks=" + std::to_string(ranks) + " --zero=" + stage).back(),
          alone.loss_last)
          << ranks << " ranks, stage " << stage;
  }
}

// Layouts of tensor, context and pipeline ranks.
TEST_F(L22_SameSteps, EachLayoutOfLesson20) {
  const TrainSettings s = settings_with("--model=gpt-4x16x4 --batch=8");
  const Text text = text_of(s);
  const Loader loader(text.corpus, 16, 1);
  const Context context("cpu", 1);
  int64_t layouts = 0;
  for (const Layout& l : layouts_of(4, config_of(s), s.batch)) {
    if (l.data == 4) continue;  // tested above
    ++layouts;
    const LayoutReference alone = train_as(l, loader, task_like(config_of(s)), 2);
    EXPECT_EQ(trainer("--model=gpt-4x16x4 --batch=8 --clip=0 --micro-batches=2 --ranks=4 --tensor-ranks=" +
                      std::to_string(l.tensor) + " --context-ranks=" + std::to_string(l.context) +
                      " --pipeline-ranks=" + std::to_string(l.pipeline)),
              alone.losses)
        << l.text();
  }
  EXPECT_EQ(layouts, 8);  // layouts with at most 2 context ranks
}

}  // namespace
}  // namespace gradus
