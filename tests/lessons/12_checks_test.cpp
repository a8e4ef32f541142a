// Each check of lesson 12 passes with right values and fails with a planted wrong one.
#include <cmath>

#include "lessons/12_lora/four_bits.h"
#include "lessons/12_lora/paging.h"
#include "lessons/12_lora/same.h"
#include "src/optim/optimizer.h"
#include "src/quant/double_quantized.h"
#include "src/train/dummy.h"
#include "tests/devices.h"
#include "tests/lesson_testing.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

TEST(L12_Checks, TheSameFunction) {
  const SameFunction right{.base = {{1, -4}, 100},
                           .adapted = {{1, -4}, 130},
                           .trained = {{2, -4}, 130},
                           .merged = {{2, -4.00002}, 100},
                           .of_a = {0, 0.1},
                           .of_b = {0.5, 0.5}};
  const Checked failed(right, same_function);
  EXPECT_EQ(failed([](SameFunction& f) { f.adapted.values[1] = -4.0000001; }),
            Names{"(a) logits of new adapters that differ bitwise from the base model's"});
  for (const double wrong : {1e-30, double(NAN)})
    EXPECT_EQ(failed([=](SameFunction& f) { f.of_a[0] = wrong; }),
              Names{"(a) gradient of A, first step: largest element"});
  for (const double wrong : {0.0, double(NAN)}) {
    EXPECT_EQ(failed([=](SameFunction& f) { f.of_b[0] = wrong; }),
              Names{"(a) gradient of B, first step: largest element"});
    EXPECT_EQ(failed([=](SameFunction& f) { f.of_a[1] = wrong; }),
              Names{"(a) gradient of A, tenth step: largest element"});
  }
  EXPECT_EQ(failed([](SameFunction& f) { f.trained.values[0] = 1.03, f.merged.values[0] = 1.03; }),
            Names{"(a) change of the logits by 10 steps: largest, relative"});
  for (const double wrong : {-4.0001, -3.9999, double(NAN)})
    EXPECT_EQ(failed([=](SameFunction& f) { f.merged.values[1] = wrong; }),
              Names{"(a) change of the logits by the merge: largest, relative"});
  EXPECT_EQ(failed([](SameFunction& f) { f.merged = f.trained; }),
            Names{"(a) FLOPs of a forward pass, merged and base model"})
      << "logits that were not merged, compared with themselves";
  EXPECT_EQ(failed([](SameFunction& f) { f.trained.flops = 100; }),
            Names{"(a) additional FLOPs of a forward pass, not merged"});
}

Usage usage(std::initializer_list<std::pair<Kind, int64_t>> bytes) {
  Usage u;
  for (const auto& [kind, n] : bytes) u.by_kind[int(kind)] = n;
  return u;
}
int64_t& of(std::optional<Usage>& u, Kind kind) { return u->by_kind[int(kind)]; }

TEST(L12_Checks, BytesOfEachWay) {
  const TransformerConfig c{.vocab = 40, .context = 8, .layers = 2, .heads = 2, .channels = 16};
  for (const WayToAdapt& way : ways_to_adapt()) {
    const int64_t trainable = predicted_trainable(c, way);
    Adapted run;
    run.row.peak = usage({{Kind::Optimizer, way.paged ? 0 : 8 * trainable}});
    if (way.in_4_bits) of(run.row.peak, Kind::Weight) = predicted_weight_bytes(c, way);
    run.row.host_peak = usage({{Kind::Optimizer, 8 * trainable}});
    run.gradient_bytes = 4 * trainable;
    const Checked failed(run, [&](const Adapted& a, Report& r) { check_bytes(c, way, a, r); });
    for (const int64_t more : {-4, 4}) {
      EXPECT_EQ(failed([=](Adapted& a) { of(a.row.peak, Kind::Optimizer) += more; }),
                Names{way.name + ": optimizer states on the device at the peak, bytes"});
      EXPECT_EQ(failed([=](Adapted& a) { a.gradient_bytes += more; }),
                Names{way.name + ": gradients, bytes"});
      if (way.paged) {
        EXPECT_EQ(failed([=](Adapted& a) { of(a.row.host_peak, Kind::Optimizer) += more; }),
                  Names{way.name + ": optimizer states on the host, bytes"});
      }
      if (way.in_4_bits) {
        EXPECT_EQ(failed([=](Adapted& a) { of(a.row.peak, Kind::Weight) += more; }),
                  Names{way.name + ": weights, bytes"});
      }
    }
  }
}

TEST(L12_Checks, LossesAndPeaksOfTheWays) {
  const auto failed = [](const std::string& planted, double loss, int64_t activations = 100,
                         int64_t steps = kWholeRun) {
    std::vector<Adapted> all;
    for (const WayToAdapt& way : ways_to_adapt()) {
      ReportRow& row = all.emplace_back().row;
      row.name = way.name;
      row.loss_held_out = way.name == planted ? loss : way.head_only ? 2.5 : 2;
      row.peak = usage({{Kind::Workspace, 1000}, {Kind::Activation, way.paged ? activations : 300}});
    }
    return failed_checks([&](Report& r) { compare_ways(all, steps, r); });
  };
  const auto losses = [](const std::string& way, const std::string& other) {
    return Names{way + " compared with " + other + ": held-out loss, relative difference"};
  };
  EXPECT_EQ(failed("LoRA r 8", 9), Names{});
  EXPECT_EQ(failed("LoRA r 2", 9, 100, kWholeRun - 1), Names{})
      << "the bounds are for a run of kWholeRun steps";
  for (const double wrong : {2.11, double(NAN)}) {
    EXPECT_EQ(failed("LoRA r 2, NF4", wrong), losses("LoRA r 2, NF4", "LoRA r 2, bf16"));
    EXPECT_EQ(failed("QLoRA r 2", wrong), losses("QLoRA r 2", "LoRA r 2"));
    EXPECT_EQ(failed("output head only", wrong),
              Names{"output head only compared with all weights: held-out loss, relative difference"});
  }
  EXPECT_EQ(failed("LoRA r 2", 2.21), losses("LoRA r 2", "all weights"));
  EXPECT_EQ(failed("LoRA r 2", 1.9), losses("QLoRA r 2", "LoRA r 2"));
  EXPECT_EQ(failed("LoRA r 2, bf16", 1.9), losses("LoRA r 2, NF4", "LoRA r 2, bf16"));
  EXPECT_EQ(failed("", 0, 150), Names{"QLoRA r 2 / LoRA r 2: peak without workspace"});
}

TEST(L12_Checks, FourBits) {
  const Context context("cpu");
  const std::vector<FourBits> right{{"a", {256, 64}, 16384 / 2 + 256 + 4, 32768, 1, 1, 1},
                                    {"b", {128, 512}, 65536 / 2 + 1024 + 16, 131072, 1, 1, 1}};
  const Checked failed(right, four_bits_table);
  for (const int64_t more : {-4, -1, 1}) {
    EXPECT_EQ(failed([=](auto& layers) { layers[0].bytes += more; }), Names{"(b) a: NF4 weight, bytes"});
    EXPECT_EQ(failed([=](auto& layers) { layers[1].bytes += more; }), Names{"(b) b: NF4 weight, bytes"});
  }
  EXPECT_EQ(failed([](auto& layers) { layers[0].seconds = 100; }),
            Names{"(b) slowest product: NF4 speed / bf16 speed"});
}

TEST(L12_Checks, PagedRuns) {
  const Context context("cpu");
  PagedRun run{.completed = true, .weights = {{1, 2}, {3}}};
  run.row.ms_per_step = 1, run.row.reserved_bytes = 1, run.row.host_peak = Usage();
  run.row.host_peak->by_kind[int(Kind::Optimizer)] = 512;
  const Checked failed(PagedRuns{10, 1, run, {}, run}, paged_runs);
  EXPECT_EQ(failed([](PagedRuns& r) { r.failed = r.free; }),
            Names{"(c) budget, states not paged: completed runs"});
  EXPECT_EQ(failed([](PagedRuns& r) { r.paged.completed = false; }),
            Names{"(c) budget, paged states: completed runs"});
  EXPECT_EQ(failed([](PagedRuns& r) { r.paged.row.host_peak = Usage(); }),
            Names{"(c) budget, paged states: optimizer states on the host, bytes"});
  const Names differ{"(c) paged states: weights that differ bitwise from the run without budget"};
  EXPECT_EQ(failed([](PagedRuns& r) { r.paged.weights[1][0] = std::nextafter(3.0, 4.0); }), differ);
  EXPECT_EQ(failed([](PagedRuns& r) { r.paged.weights.pop_back(); }), differ);
  EXPECT_EQ(failed([](PagedRuns& r) { r.paged.weights = r.free.weights = {}; }), differ)
      << "there are no weights to compare";
}

// The values that the lesson gives to these checks.
struct L12_MeasuredOn : ::testing::TestWithParam<const char*> {
  Context context{GetParam()};
};
ON_DEVICES_WITH_DATA(L12_MeasuredOn);

TEST_P(L12_MeasuredOn, LogitsAndGradients) {
  const TransformerConfig c{.vocab = 40, .context = 8, .layers = 1, .heads = 2, .channels = 16};
  Transformer model(c);
  model.initialize(1);
  const DummyBatch batch = dummy_batch(c, 2, 8);
  const Logits base = logits_of(model, batch.ids);
  EXPECT_EQ(base.values, to_host<double>(model.logits(batch.ids)));
  EXPECT_GT(base.flops, 0);
  add_lora(model, ".*", {.r = 2}, 1);
  EXPECT_GT(logits_of(model, batch.ids).flops, base.flops);
  Tape tape;
  tape.backward(batch.loss(model));
  EXPECT_EQ(largest_gradient(model, "lora_A.weight"), 0);
  double largest = 0;
  for (const Parameter& p : model.parameters)
    if (p.trainable())
      for (const double g : to_host<double>(p.leaf.grad)) largest = std::max(largest, std::abs(g));
  EXPECT_EQ(largest_gradient(model, "lora_B.weight"), largest);
}

TEST_P(L12_MeasuredOn, StatesMoveToTheHostAndReturnForTheUpdate) {
  context.add_host();
  Transformer model({.vocab = 40, .context = 8, .layers = 1, .heads = 2, .channels = 16});
  model.initialize(1);
  AdamW optimizer(model.parameters);
  const DummyBatch batch = dummy_batch(model.config, 2, 8);
  const auto states = [](Device& device) { return device.meter().now()[Kind::Optimizer]; };
  const int64_t bytes = states(context.device);
  for (int step = 0; step < 2; ++step) {
    move_states_to_host(context.device);
    EXPECT_EQ(states(context.device), 0);
    EXPECT_EQ(states(*context.host), bytes);
    model.parameters.zero_grad();
    Tape tape;
    tape.backward(batch.loss(model));
    optimizer.step(1e-3);
    EXPECT_EQ(states(context.device), bytes);
    EXPECT_EQ(states(*context.host), 0);
  }
}

TEST(L12_Measured, BytesAndTimesOfProductsFromFourBits) {
  const Context context("emu");  // with one small layer
  const std::vector<FourBits> layers = measure_four_bits();
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].bytes_bf16, 2 * 128 * 128);
  EXPECT_EQ(layers[0].bytes, 128 * 128 / 2 + 256 + 4);
  EXPECT_GE(layers[0].temporaries, 2 * 128 * 128) << "the dequantized weight";
  EXPECT_LE(layers[0].temporaries, 2 * 128 * 128 + 4 * 256 + (1 << 16));
  EXPECT_EQ(layers[0].seconds, 0) << "emu has no times";
}

TEST(L12_Measured, PagedRunsOfTheLesson) {
  const Context context("cpu");
  const PagedRuns runs = measure_paged_runs(lesson_with({"--device=cpu"}, "12_lora", 10));
  EXPECT_EQ(failed_checks([&](Report& r) { paged_runs(runs, r); }), Names{});
  EXPECT_EQ(runs.free.host(), 0);
  EXPECT_EQ(runs.free.states, runs.paged.states);
  EXPECT_LE(*runs.paged.row.reserved_bytes, runs.budget);
  EXPECT_GT(*runs.free.row.reserved_bytes, runs.budget);
  EXPECT_GT(runs.paged.moved.bytes_in, 0);
  EXPECT_TRUE(runs.failed.weights.empty());
}

}  // namespace
}  // namespace gradus
