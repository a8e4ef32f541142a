// Chains: a captured step whose calls are fused computes bitwise equal results, for a model and for ops.
#include <omp.h>

#include "tests/train/chains_testing.h"

namespace gradus {
namespace {

constexpr int64_t kSteps = 9;  // 3 of them before the calls are fused
enum class By : uint8_t { Calls, Captured, Fused };
struct Ended {
  Numbers weights;
  std::vector<double> losses;
  int64_t updates = 0, attempt = 0;
  FusedChains fused;
};
Ended train(const Way& kind, By by, const char* device = "cpu",
            RunTimeCompiler& compiler = shared_compiler()) {
  Context context(device, 3);
  Training t(kind);
  Ended end;
  CapturedStep captured;
  for (int64_t s = 0; s < kSteps; ++s) {
    t.fill(s);
    if (s == 3 && by == By::Fused) end.fused = fuse_chains(captured, compiler);
    if (by == By::Calls)
      t.step();
    else
      captured.run(t.inputs, [&] { t.step(); });
    if (context.device.has_data()) end.losses.push_back(item(t.loss));
  }
  if (context.device.has_data()) end.weights = t.numbers();
  end.updates = t.optimizer->scalars().updates, end.attempt = context.device.scalars().step;
  return end;
}
void expect_alike(const Ended& fused, const Ended& other, const char* of) {
  EXPECT_EQ(fused.losses, other.losses) << "losses that differ from those " << of;
  EXPECT_TRUE(fused.weights == other.weights) << "parameters that differ from those " << of;
  EXPECT_EQ(fused.updates, other.updates) << of;
  EXPECT_EQ(fused.attempt, other.attempt) << of;
}

std::vector<Way> ways() {
  std::vector<Way> all = kWays;
  all.push_back({.name = "no_dropout", .dropout = 0});
  return all;
}
struct L16_ChainsOfAModel : ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Kinds, L16_ChainsOfAModel, ::testing::ValuesIn(ways()),
                         [](const auto& info) { return info.param.name; });

TEST_P(L16_ChainsOfAModel, AFusedStepIsTheStepToTheBit) {
  const Ended fused = train(GetParam(), By::Fused);
  expect_alike(fused, train(GetParam(), By::Captured), "of the captured step without chains");
  expect_alike(fused, train(GetParam(), By::Calls), "of plain steps");
  EXPECT_GE(fused.fused.chains.size(), 3u) << "kinds of chains";
}

TEST_P(L16_ChainsOfAModel, OnEmuAFusedStepIsTheStepToTheBit) {
  const Ended fused = train(GetParam(), By::Fused, "emu");
  expect_alike(fused, train(GetParam(), By::Captured, "emu"), "of the captured step without chains");
  EXPECT_GE(fused.fused.chains.size(), 1u) << "kinds of chains";
}

TEST_P(L16_ChainsOfAModel, OnMetaTheSameChainsAreFoundAndNothingIsCompiled) {
  const std::string folder = ::testing::TempDir() + "gradus-chains-on-meta";
  RunTimeCompiler unused(folder, RunTimeCompiler::built_with("cpu"));
  const FusedChains on_meta = train(GetParam(), By::Fused, "meta", unused).fused;
  const FusedChains on_cpu = train(GetParam(), By::Fused).fused;
  EXPECT_EQ(on_meta.chains, on_cpu.chains);
  EXPECT_EQ(on_meta.calls_after, on_cpu.calls_after);
  EXPECT_EQ(on_meta.bytes_after, on_cpu.bytes_after);
  EXPECT_EQ(unused.compiled() + unused.from_folder(), 0);
  EXPECT_FALSE(std::filesystem::exists(folder)) << "a folder was made";
}

// Two models, each with an optimizer and a captured step, alternate in one context.
TEST(L16_Chains, OfTwoModelsInOneContextDoNotMeet) {
  std::vector<Numbers> weights;
  std::vector<std::vector<double>> losses(2);
  for (const bool fuses : {false, true}) {
    Context context("cpu", 3);
    Training a(kWays[0], 1), b(kWays[1], 2);
    for (Training* t : {&a, &b}) t->captured = std::make_unique<CapturedStep>();
    for (int64_t s = 0; s < kSteps; ++s)
      for (Training* t : {&a, &b}) {
        t->fill(s);
        if (fuses && s == (t == &a ? 3 : 5)) fuse_chains(*t->captured, shared_compiler());
        t->captured->run(t->inputs, [&] { t->step(); });
        losses[fuses].push_back(item(t->loss));
      }
    weights.push_back(a.numbers()), weights.push_back(b.numbers());
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_TRUE(weights[2] == weights[0]) << "the first model";
  EXPECT_TRUE(weights[3] == weights[1]) << "the second model";
}

TEST(L16_Chains, WhatIsFusedIsCounted) {
  Context context("cpu", 3);
  Training t(kWays[0]);
  CapturedStep captured;
  for (int64_t s = 0; s < 3; ++s) t.fill(s), captured.run(t.inputs, [&] { t.step(); });
  const auto flops = [&] {
    int64_t all = 0;
    for (const auto& recorded : captured.calls()) all += recorded.call->cost.flops;
    return all;
  };
  int64_t bytes = 0;
  for (const auto& recorded : captured.calls()) bytes += recorded.call->cost.bytes;
  const int64_t operations = flops();
  const int64_t calls = int64_t(captured.calls().size());
  const FusedChains fused = fuse_chains(captured, shared_compiler());
  EXPECT_EQ(fused.calls_before, calls);
  EXPECT_EQ(fused.bytes_before, bytes);
  EXPECT_EQ(fused.calls_after, int64_t(captured.calls().size()));
  EXPECT_LT(fused.bytes_after, fused.bytes_before);
  EXPECT_EQ(flops(), operations) << "a chain has the FLOPs of its calls";
  int64_t removed = 0;
  for (const auto& [name, count] : fused.chains) {
    EXPECT_EQ(fused.code.count(name), 1u) << name << " has no code";
    removed += count * std::count(name.begin(), name.end(), '+');
  }
  EXPECT_EQ(fused.calls_before - fused.calls_after, removed) << "calls that no chain's name contains";
  context.device.meter().keep_trace();
  t.fill(3), captured.run(t.inputs, [&] { t.step(); });
  int64_t kernels = 0;
  for (const auto& [cost, count] : context.device.meter().trace()) kernels += count;
  EXPECT_EQ(kernels, fused.calls_after) << "kernels of a replay";
}

struct L16_ChainsRefused : CapturedStepTest {
  // The same steps without an attempt to fuse.
  Ended plain = train(t.kind, By::Captured);
  std::vector<double> losses;
  void run_and_keep_loss() { run(), losses.push_back(item(t.loss)); }
};

TEST_F(L16_ChainsRefused, BeforeTheStepReplays) {
  context.make_current();
  for (int i = 0; i < 3; ++i) {
    expect_refused("run three steps first", [&] { fuse_chains(captured, shared_compiler()); });
    run_and_keep_loss();
  }
  fuse_chains(captured, shared_compiler());
  while (steps < kSteps) run_and_keep_loss();
  EXPECT_EQ(losses, plain.losses);
}

TEST_F(L16_ChainsRefused, WithoutACompilerTheStepReplaysAsBefore) {
  context.make_current();
  RunTimeCompiler none(::testing::TempDir() + "gradus-no-compiler", "no-such-compiler");
  while (steps < 3) run_and_keep_loss();
  const size_t calls = captured.calls().size();
  expect_refused("'no-such-compiler' cannot be started", [&] { fuse_chains(captured, none); });
  std::filesystem::remove_all(::testing::TempDir() + "gradus-no-compiler");
  EXPECT_EQ(captured.calls().size(), calls);
  while (steps < kSteps) run_and_keep_loss();
  EXPECT_EQ(losses, plain.losses);
  EXPECT_TRUE(t.numbers() == plain.weights) << "the parameters differ after an error of the compiler";
}

// Otherwise the chains' functions or memory would belong to the other context.
TEST(L16_Chains, AreRefusedWhileAnotherContextIsCurrent) {
  for (const char* device : {"cpu", "meta"}) {
    Context other(device, 9), context("cpu", 3);
    Training t(kWays[0]);
    CapturedStep captured;
    for (int64_t s = 0; s < 3; ++s) t.fill(s), captured.run(t.inputs, [&] { t.step(); });
    other.make_current();
    EXPECT_NE(refusal([&] { fuse_chains(captured, shared_compiler()); }), "")
        << "fused, for a step of another context, on " << device;
    context.make_current();
  }
}

TEST(L16_Chains, TheNumberOfThreadsChangesNoBit) {
  const int before = omp_get_max_threads();
  std::vector<Ended> ended;
  for (const int threads : {1, 4}) {
    omp_set_num_threads(threads);
    ended.push_back(train(kWays[1], By::Fused));
  }
  omp_set_num_threads(before);
  expect_alike(ended[0], ended[1], "of another number of threads");
}

}  // namespace
}  // namespace gradus
