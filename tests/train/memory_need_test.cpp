// The model memory calculator: its predictions are what a run needs, and its answers are right.
#include "src/train/memory_need.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/utilization.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TrainingRun tiny(const char* family, const char* recipe, int64_t batch = 3, int64_t seq = 17) {
  TransformerConfig c = transformer_config(family);
  c.vocab = 65, c.context = 24, c.layers = 2, c.heads = 4, c.channels = 32;
  if (c.rotary > 0) c.rotary = 4;
  if (c.output_head == OutputHead::Pooled) c.labels = 2;
  c.precision = precision_recipe(recipe);
  return {c, batch, seq};
}

// A step as in a lesson.
void train(Transformer& model, Optimizer& optimizer, const TrainingRun& run, uint64_t step) {
  const DummyBatch batch = dummy_batch(run.model, run.batch, run.seq, step);
  Tape tape;
  const Tensor loss = batch.loss(model);
  model.parameters.zero_grad();
  tape.backward(loss);
  optimizer.step(1e-3);
}

void expect_needed_on_cpu(const TrainingRun& run) {
  const MemoryNeed need = memory_need(run);
  Context context("cpu", 1);
  Transformer model(run.model);
  model.initialize(1);
  AdamW optimizer(model.parameters);
  for (uint64_t step = 0; step < 3; ++step) train(model, optimizer, run, step);
  const Meter& meter = context.device.meter();
  for (int k = 0; k < kKinds; ++k)
    EXPECT_EQ(need.peak.usage.by_kind[k], meter.at_peak().by_kind[k]) << name_of(Kind(k));
  EXPECT_EQ(need.peak.usage, meter.at_peak());
  EXPECT_EQ(need.reserved, meter.peak_reserved());
  EXPECT_EQ(need.parameters, model.parameters.numel());
}

TEST(L04_MemoryNeed, ThePredictedPeakIsTheMeasuredOneToTheByte) {
  for (const char* family : {"gpt2", "bert-base", "polyglot-ko-1.3b"})
    for (const std::string_view recipe : kRecipes) {
      SCOPED_TRACE(std::string(family) + " " + std::string(recipe));
      expect_needed_on_cpu(tiny(family, recipe.data()));
    }
}

TEST(L04_MemoryNeed, WhoIsAliveAtThePeakSumsToIt) {
  TrainingRun run{transformer_config("bert-large"), 4, 512};
  run.model.labels = 2;
  const MemoryNeed need = memory_need(run);
  EXPECT_EQ(need.parameters, 335'143'938);
  Usage sum;
  for (const MemoryEvent& b : need.peak.alive) {
    sum.by_kind[int(b.kind)] += b.requested;
    sum.rounding += b.bytes - b.requested;
  }
  EXPECT_EQ(sum, need.peak.usage);
  EXPECT_EQ(need.peak.usage[Kind::Weight], 4 * need.parameters);
  EXPECT_EQ(need.peak.usage[Kind::Gradient], 4 * need.parameters);
  EXPECT_EQ(need.peak.usage[Kind::Optimizer], 8 * need.parameters);
  EXPECT_EQ(need.peak.usage[Kind::Other],  // and the step number that the tape's dropout uses
            int64_t(sizeof(StepScalars) + sizeof(UpdateScalars) + sizeof(int64_t)));
  EXPECT_GT(need.peak.usage[Kind::Activation],
            24 * int64_t(4) * 16 * 512 * 512 * 4);  // only the probabilities
  EXPECT_TRUE(need.peak.reached_by.op.starts_with("backward/")) << need.peak.reached_by.op;
  EXPECT_GE(need.reserved, need.peak.usage.allocated());
}

TEST(L04_MemoryNeed, TheLargestBatchFitsAndOneMoreDoesNot) {
  int64_t odd = 0;
  for (const int64_t budget :
       {int64_t(24) << 20, int64_t(75) << 20, int64_t(200) << 20, int64_t(333) << 20}) {
    TrainingRun run = tiny("gpt2", "fp32");
    const int64_t largest = largest_batch(run, budget);
    odd += largest % 2;
    EXPECT_GT(largest, 0) << "in " << budget << " bytes";
    run.batch = largest;
    EXPECT_TRUE(fits(run, budget)) << "the largest batch is " << largest << " in " << budget << " bytes";
    run.batch = largest + 1;
    EXPECT_FALSE(fits(run, budget)) << "the largest batch is " << largest << " in " << budget
                                    << " bytes, and one more fits";
  }
  EXPECT_GT(odd, 0) << "otherwise a search that stops two apart would pass";
  EXPECT_EQ(largest_batch(tiny("gpt2", "fp32"), int64_t(4) << 20), 0) << "the workspace is larger";
  EXPECT_EQ(largest_batch(tiny("gpt2", "fp32"), 1), 0) << "not even the device's scalars fit";
  EXPECT_EQ(largest_batch(tiny("gpt2", "fp32"), int64_t(1) << 60), int64_t(1) << 24) << "the maximum";
}

TEST(L04_MemoryNeed, TheLargestBatchIsTheSameWhateverTheRunsIs) {
  const int64_t budget = int64_t(24) << 20, largest = largest_batch(tiny("gpt2", "fp32", 3), budget);
  for (const int64_t batch : {int64_t(-1), int64_t(0), largest, int64_t(1) << 40})
    EXPECT_EQ(largest_batch(tiny("gpt2", "fp32", batch), budget), largest) << batch;
}

TEST(L04_MemoryNeed, WhatFitsNeedsNoMore) {
  const TrainingRun run = tiny("gpt2", "fp32", 200);
  const MemoryNeed need = memory_need(run);
  EXPECT_TRUE(fits(run, need.reserved));
  EXPECT_FALSE(fits(run, need.peak.usage.allocated() - 1));
}

// While the backward pass runs, activations only become fewer, and before its last op only those of that op
// exist.
TEST(L04_MemoryNeed, BackwardFreesAsItGoes) {
  RecordProperty("exercise", "04.5");
  Context context("meta", 1);
  context.device.allocator().keep_history();
  const TrainingRun run = tiny("gpt2", "fp32");
  Transformer model(run.model);
  const DummyBatch batch = dummy_batch(run.model, run.batch, run.seq);
  Tape tape;
  const Tensor loss = batch.loss(model);
  tape.backward(loss);
  MemoryReplay replay;
  int64_t before = -1, first = -1, last = -1;
  for (const MemoryEvent& e : context.device.allocator().history()) {
    replay.apply(e);
    if (!e.op.starts_with("backward/")) continue;
    last = replay.meter.now()[Kind::Activation];
    if (first < 0) first = before = last;
    EXPECT_LE(last, before) << "at " << e.name << " in " << e.op;
    before = last;
  }
  EXPECT_GT(first, 0);
  EXPECT_EQ(last, 0) << "of " << first << " bytes before backward";
}

// The largest bytes of each name among the `count` largest tensors that are alive at the peak.
std::map<std::string, int64_t> largest_by_name(const MemoryNeed& need, size_t count) {
  std::map<std::string, int64_t> largest;
  for (size_t i = 0; i < count; ++i) {
    int64_t& bytes = largest[need.peak.alive[i].name];
    bytes = std::max(bytes, need.peak.alive[i].requested);
  }
  return largest;
}

TEST(L04_MemoryNeed, WhatGrowsWithTheBatchAndTheSequence) {
  const auto need_of = [](int64_t batch, int64_t seq) {
    TrainingRun run{transformer_config("bert-base"), batch, seq};
    run.model.labels = 2;
    run.model.precision = precision_recipe("mixed");
    return memory_need(run);
  };
  const MemoryNeed need = need_of(16, 256), batch_doubled = need_of(32, 256), seq_doubled = need_of(16, 512);
  const int64_t N = need.parameters;
  for (const MemoryNeed& n : {need, batch_doubled, seq_doubled}) {
    EXPECT_EQ(n.peak.usage[Kind::Weight], 2 * N);
    EXPECT_EQ(n.peak.usage[Kind::Master], 4 * N);
    EXPECT_EQ(n.peak.usage[Kind::Gradient], 4 * N);
    EXPECT_EQ(n.peak.usage[Kind::Optimizer], 8 * N);
  }
  const auto largest = largest_by_name(need, 10);
  const auto by_batch = largest_by_name(batch_doubled, batch_doubled.peak.alive.size()),
             by_seq = largest_by_name(seq_doubled, seq_doubled.peak.alive.size());
  struct Growth {
    const char* name;
    int64_t batch, seq;
  };
  const Growth expected[] = {{"wte.weight", 1, 1},   {"wte.weight.master", 1, 1}, {"wte.weight.grad", 1, 1},
                             {"wte.weight.m", 1, 1}, {"wte.weight.v", 1, 1},      {"linear", 2, 2},
                             {"gelu_erf", 2, 2},     {"attention.probs", 2, 4}};
  EXPECT_EQ(largest.size(), std::size(expected)) << "the ten largest must have exactly these names";
  for (const auto& [name, batch, seq] : expected) {
    ASSERT_TRUE(largest.contains(name)) << name;
    EXPECT_EQ(by_batch.at(name), batch * largest.at(name)) << name;
    EXPECT_EQ(by_seq.at(name), seq * largest.at(name)) << name;
  }
}

// In this run the allocator's segments fit all requests only after the fourth step.
TEST(L04_MemoryNeed, ManyStepsNeedNoMoreThanPredicted) {
  TrainingRun run{transformer_config("bert-large"), 3, 256};
  run.model.labels = 2;
  Context context("meta", 1);
  Transformer model(run.model);
  AdamW optimizer(model.parameters);
  for (uint64_t step = 0; step < 10; ++step) train(model, optimizer, run, step);
  const MemoryNeed need = memory_need(run);
  EXPECT_EQ(need.reserved, context.device.meter().peak_reserved());
  EXPECT_EQ(need.peak.usage, context.device.meter().at_peak());
}

// The meter sums the FLOPs of all steps in an int64. With the largest countable batch none may be lost.
TEST(L04_MemoryNeed, TheFlopsOfTheLargestBatchCanBeCounted) {
  constexpr int64_t kNoLimit = int64_t(1) << 60;
  TrainingRun run{transformer_config("gpt2"), 1, 1024};
  run.batch = largest_batch(run, kNoLimit);
  EXPECT_GT(run.batch, 1 << 16);
  Context context("meta", 1, kNoLimit);
  Transformer model(run.model);
  AdamW optimizer(model.parameters);
  for (uint64_t step = 0; step < 4; ++step) {  // the number of steps that the calculator runs
    train(model, optimizer, run, step);
    const double expected = double(step + 1) * 6 * double(run.batch) * 1024 * 85e6;  // the blocks' only
    EXPECT_GT(double(context.device.meter().flops()), expected) << "step " << step;
  }
}

TEST(L04_MemoryNeed, DeepModelsAreMeasured) {
  EXPECT_GT(memory_need({transformer_config("gpt-1000x8x1"), 1, 8}).reserved, 0);
}

TEST(L04_MemoryNeed, SizesThatCannotBeAreRefused) {
  const TrainingRun gpt = tiny("gpt2", "fp32"), huge{transformer_config("gpt-9x1000000x1000000"), 16, 1024};
  const auto need = [](const TrainingRun& run) { return [=] { memory_need(run); }; };
  expect_refused("a batch of 0 sequences of 17 tokens; both must be", need(tiny("gpt2", "fp32", 0)));
  expect_refused("a batch of -1 sequences of 17 tokens; both must be", need(tiny("gpt2", "fp32", -1)));
  expect_refused("a batch of 1 sequences of 0 tokens; both must be", need(tiny("gpt2", "fp32", 1, 0)));
  expect_refused("context", need(tiny("gpt2", "fp32", 1, 25)));
  expect_refused("labels", need({transformer_config("bert-base"), 1, 8}));
  for (const int64_t batch : {16, 1 << 24})
    expect_refused("more than gradus can count", need({huge.model, batch, huge.seq}));
  for (const int64_t budget : {0, -1})  // 0 would mean no limit
    expect_refused("a budget of " + std::to_string(budget) + " bytes; it must be at least 1",
                   [&] { fits(gpt, budget); });
}

TEST(L04_Utilization, SaysTimeSpeedAndWhatIsOccupied) {
  Context context("meta", 1);
  const Tensor x(context.device, {5, 1 << 20}, DType::F32, Kind::Data, "x");
  std::ostringstream out;
  print_summary(out, context.device, 0.5, 12);
  // On meta only the allocator knows the occupied bytes: 20 MiB of x, 2 MiB with the step's scalars.
  EXPECT_EQ(out.str(), "time: 500 ms, 24 samples/s, memory occupied: 22 MiB\n");
  std::ostringstream line, slow;
  print_utilization(line, context.device);
  EXPECT_EQ(line.str(), "memory occupied: 22 MiB\n");
  print_summary(slow, context.device, 90, 30);
  EXPECT_EQ(slow.str(), "time: 1 min 30 s, 0.3333 samples/s, memory occupied: 22 MiB\n");
  Context cpu("cpu", 1);
  EXPECT_GT(memory_occupied(cpu.device), int64_t(1) << 20) << "the process takes more than 1 MiB";
  EXPECT_LT(memory_occupied(cpu.device), int64_t(1) << 40);
}

TEST(L04_Utilization, MebibytesAreRoundedDown) {
  Context cpu("cpu", 1);
  std::vector<std::string> held;  // until the occupied bytes are nearer to the next MiB
  const auto over = [&] { return memory_occupied(cpu.device) % (1 << 20); };
  while (over() < 600'000 || over() > 1'000'000) held.emplace_back(100'000, 'x');
  const int64_t before = memory_occupied(cpu.device);
  std::ostringstream out;
  print_utilization(out, cpu.device);
  if (memory_occupied(cpu.device) != before) GTEST_SKIP() << "the process took memory in between";
  EXPECT_EQ(out.str(), "memory occupied: " + std::to_string(before >> 20) + " MiB\n");
}

}  // namespace
}  // namespace gradus
