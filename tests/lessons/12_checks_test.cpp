// Each check that lesson 12 makes passes with right values, and fails with a planted wrong one.
#include <cmath>

#include "lessons/12_lora/four_bits.h"
#include "lessons/12_lora/paging.h"
#include "lessons/12_lora/same.h"
#include "src/quant/double_quantized.h"
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
            Names{"before the first step: logits are the base's"});
  for (const double wrong : {1e-30, double(NAN)})
    EXPECT_EQ(failed([=](SameFunction& f) { f.of_a[0] = wrong; }),
              Names{"before the first step: gradients of A"});
  for (const double wrong : {0.0, double(NAN)}) {
    EXPECT_EQ(failed([=](SameFunction& f) { f.of_b[0] = wrong; }),
              Names{"before the first step: some gradient of B is not 0"});
    EXPECT_EQ(failed([=](SameFunction& f) { f.of_a[1] = wrong; }),
              Names{"before the second step: some gradient of A is not 0"});
  }
  EXPECT_EQ(failed([](SameFunction& f) { f.trained.values[0] = 1.03, f.merged.values[0] = 1.03; }),
            Names{"after 10 steps: largest change of a logit / largest logit"});
  for (const double wrong : {-4.0001, -3.9999, double(NAN)})
    EXPECT_EQ(failed([=](SameFunction& f) { f.merged.values[1] = wrong; }), Names{"merged: logits, off by"});
  EXPECT_EQ(failed([](SameFunction& f) { f.merged = f.trained; }),
            Names{"merged: FLOP of a forward pass, as the base's"})
      << "logits that were not merged, compared with themselves";
  EXPECT_EQ(failed([](SameFunction& f) { f.trained.flops = 100; }),
            Names{"not merged: more FLOP of a forward pass, by"});
}

TEST(L12_Checks, BytesOfWhatTrains) {
  const TransformerConfig c{.vocab = 40, .context = 8, .layers = 2, .heads = 2, .channels = 16};
  for (const WayToAdapt& way : ways_to_adapt()) {
    const int64_t trainable = predicted_trainable(c, way);
    const auto failed = [&](int64_t more_states, int64_t more_gradients) {
      return failed_checks([&](Report& r) {
        check_bytes(c, way, 8 * trainable + more_states, 4 * trainable + more_gradients, r);
      });
    };
    EXPECT_EQ(failed(0, 0), Names{}) << way.name;
    for (const int64_t more : {-4, 4}) {
      EXPECT_EQ(failed(more, 0), Names{way.name + ": bytes of states"});
      EXPECT_EQ(failed(0, more), Names{way.name + ": bytes of gradients"});
    }
  }
}

TEST(L12_Checks, HeldOutLosses) {
  const auto failed = [](const std::string& planted, double loss, int64_t steps = 800) {
    std::vector<Adapted> all;
    for (const WayToAdapt& way : ways_to_adapt()) {
      all.emplace_back().row.name = way.name;
      all.back().row.loss_held_out = way.head_only ? 2.5 : 2;
    }
    for (Adapted& a : all)
      if (a.row.name == planted) a.row.loss_held_out = loss;
    return failed_checks([&](Report& r) { compare_losses(all, steps, r); });
  };
  EXPECT_EQ(failed("r 1", 9), Names{});
  EXPECT_EQ(failed("r 2", 9, 799), Names{}) << "another run than the bounds are meant for";
  for (const double wrong : {2.11, double(NAN)}) {
    EXPECT_EQ(failed("r 2", wrong), Names{"r 2, all layers: held-out loss, worse than all weights' by"});
    EXPECT_EQ(failed("r 2, 4 bits", wrong), Names{"4 bits: held-out loss, worse than bf16's by"});
    EXPECT_EQ(failed("head only", wrong), Names{"head only: held-out loss, worse than all weights' by"});
  }
  EXPECT_EQ(failed("r 2, bf16", 1.9), Names{"4 bits: held-out loss, worse than bf16's by"});
}

TEST(L12_Checks, FourBits) {
  const Context context("cpu");
  const std::vector<FourBits> right{{"a", {256, 64}, 16384 / 2 + 256 + 4, 32768, 1, 1, 1},
                                    {"b", {128, 512}, 65536 / 2 + 1024 + 16, 131072, 1, 1, 1}};
  const Checked failed(right, four_bits_table);
  for (const int64_t more : {-4, -1, 1}) {
    EXPECT_EQ(failed([=](auto& layers) { layers[0].bytes += more; }), Names{"a: bytes in 4 bits"});
    EXPECT_EQ(failed([=](auto& layers) { layers[1].bytes += more; }), Names{"b: bytes in 4 bits"});
  }
  EXPECT_EQ(failed([](auto& layers) { layers[0].seconds = 100; }), Names{}) << "time never fails";
}

TEST(L12_Checks, PagedRuns) {
  const Context context("cpu");
  PagedRun run{.completed = true, .weights = {{1, 2}, {3}}};
  run.row.ms_per_step = 1, run.row.reserved_bytes = 1, run.row.host_peak = Usage();
  run.row.host_peak->by_kind[int(Kind::Optimizer)] = 512;
  const Checked failed(PagedRuns{10, 1, run, {}, run}, paged_runs);
  EXPECT_EQ(failed([](PagedRuns& r) { r.failed = r.free; }), Names{"without a host the budget is too small"});
  EXPECT_EQ(failed([](PagedRuns& r) { r.paged.completed = false; }), Names{"paged: the run completes"});
  EXPECT_EQ(failed([](PagedRuns& r) { r.paged.row.host_peak = Usage(); }),
            Names{"paged: some states were on the host"});
  const Names differ{"paged: weights that differ bitwise"};
  EXPECT_EQ(failed([](PagedRuns& r) { r.paged.weights[1][0] = std::nextafter(3.0, 4.0); }), differ);
  EXPECT_EQ(failed([](PagedRuns& r) { r.paged.weights.pop_back(); }), differ);
  EXPECT_EQ(failed([](PagedRuns& r) { r.paged.weights = r.free.weights = {}; }), differ) << "none to compare";
}

// What these checks are given by the lesson.
struct L12_MeasuredOn : ::testing::TestWithParam<const char*> {
  Context context{GetParam()};
};
ON_DEVICES_WITH_DATA(L12_MeasuredOn);

TEST_P(L12_MeasuredOn, LogitsOfTheBaseWithAdaptersAndMerged) {
  const TransformerConfig c{.vocab = 40, .context = 8, .layers = 1, .heads = 2, .channels = 16};
  Transformer base(c);
  base.initialize(1);
  Weights weights;
  for (const Parameter& p : base.parameters) weights.push_back(to_host<double>(p.value));
  const SameFunction f = measure_same_function(c, weights, 1);
  EXPECT_EQ(failed_checks([&](Report& r) { same_function(f, r); }), Names{});
  EXPECT_EQ(f.adapted.flops, f.trained.flops);
  EXPECT_NE(f.adapted.values, f.trained.values);
  EXPECT_NE(f.merged.values, f.trained.values) << "a sum in another order: some last bits differ";
  ASSERT_EQ(f.of_a.size(), 10u);
  for (size_t step = 0; step < 10; ++step) {
    EXPECT_EQ(f.of_a[step] > 0, step > 0) << step;
    EXPECT_GT(f.of_b[step], 0) << step;
  }
}

TEST(L12_Measured, BytesAndTimesOfProductsFromFourBits) {
  const Context context("emu");  // a single small layer there
  const std::vector<FourBits> layers = measure_four_bits();
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].bytes_bf16, 2 * 128 * 128);
  EXPECT_EQ(layers[0].bytes, 128 * 128 / 2 + 256 + 4);
  EXPECT_GE(layers[0].scratch, 2 * 128 * 128) << "the weight as numbers";
  EXPECT_LE(layers[0].scratch, 2 * 128 * 128 + 4 * 256 + (1 << 16));
  EXPECT_EQ(layers[0].seconds, 0) << "not measured there";
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
