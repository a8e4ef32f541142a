// What the profiler records of a context: its events with their track, parent, times and cost.
#include "tests/train/profiler_testing.h"

namespace gradus {
namespace {

struct L13_Profiler : ProfilerTest {};
ON_ALL_DEVICES(L13_Profiler);

TEST_P(L13_Profiler, AStepIsPassesLayersOpsAndKernels) {
  ProfiledTraining training;
  training.step();
  Profiler profiler(context);
  profiler.begin();
  training.step();
  profiler.end();
  const auto program = paths(profiler, ProfileTrack::Program),
             backward = paths(profiler, ProfileTrack::Backward),
             kernels = paths(profiler, ProfileTrack::Kernels);
  for (const char* once :
       {"/data", "/forward", "/forward/h.0", "/forward/h.1", "/forward/embedding", "/forward/cross_entropy",
        "/forward/h.1/gelu", "/backward", "/clip_grad_norm", "/update"})
    EXPECT_EQ(count_of(program, once), 1) << once;
  EXPECT_EQ(count_of(program, "/forward/h.0/linear"), 4);
  EXPECT_EQ(count_of(backward, "/backward/linear"), 4 * 2 + 1) << "4 per block, and the logits";
  EXPECT_EQ(count_of(backward, "/backward/gelu"), 2);
  EXPECT_EQ(count_of(kernels, "/forward/h.1/gelu/gelu_fwd"), 1);
  EXPECT_EQ(count_of(kernels, "/backward/gelu/gelu_bwd"), 2);
  EXPECT_EQ(count_of(kernels, "/update/adamw"), 1);
  for (const std::string& p : backward) EXPECT_TRUE(p.starts_with("/backward/")) << p;
  for (const std::string& p : program) EXPECT_FALSE(p.starts_with("/backward/")) << p;
}

// Each range is within its parent, and comes after the earlier ones.
TEST_P(L13_Profiler, TimesAreNestedAsTheRangesAre) {
  ProfiledTraining training;
  Profiler profiler(context);
  profiler.begin();
  for (int i = 0; i < 3; ++i) training.step();
  profiler.end();
  double last[3] = {};
  for (const ProfileEvent& e : profiler.events()) {
    EXPECT_LE(e.begin, e.end) << *e.name;
    EXPECT_GE(e.begin, last[int(e.track)]) << *e.name;
    last[int(e.track)] = e.begin;
    if (e.parent < 0 || e.track == ProfileTrack::Kernels) continue;
    const ProfileEvent& in = profiler.events()[size_t(e.parent)];
    EXPECT_GE(e.begin, in.begin) << *e.name;
    EXPECT_LE(e.end, in.end) << *e.name << " in " << *in.name;
  }
}

// On devices where calls return when they are done.
TEST(L13_KernelTimes, AKernelLiesWithinTheRangeThatCalledItAndTakesTime) {
  for (const char* device : {"cpu", "emu"}) {
    Context context(device, 3);
    ProfiledTraining training;
    Profiler profiler(context);
    profiler.begin();
    training.step();
    profiler.end();
    for (const ProfileEvent& e : profiler.events()) {
      const bool is_kernel = e.track == ProfileTrack::Kernels;
      const ProfileEvent& in = is_kernel ? profiler.events()[size_t(e.parent)] : e;
      EXPECT_GE(e.begin, in.begin) << *e.name;
      EXPECT_LE(e.end, in.end) << *e.name;
      EXPECT_GT(e.end, e.begin) << *e.name;
    }
  }
}

TEST_P(L13_Profiler, AClockGivesTheTimesSinceItWasRead) {
  const std::unique_ptr<DeviceClock> first = context.device.allocator().source().clock(),
                                     second = context.device.allocator().source().clock();
  const double before = seconds_now();
  first->note(), second->note();
  run_fill(Tensor(context.device, {1000}, DType::F32, Kind::Data, "x"));
  first->note();
  const std::vector<double> times = first->read();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_LE(before, times[0]);
  EXPECT_LE(times[0], times[1]);
  EXPECT_LE(times[1], seconds_now() + 1e-3);
  EXPECT_TRUE(first->read().empty());
  EXPECT_EQ(second->read().size(), 1u) << "each clock has its own times";
}

TEST_P(L13_Profiler, KernelsAreThoseOfTheMeterWithTheirCosts) {
  ProfiledTraining training;
  training.step();
  context.device.meter().reset_totals();
  Profiler profiler(context);
  profiler.begin();
  training.step();
  profiler.end();
  int64_t calls[kOpClasses] = {}, flops[kOpClasses] = {}, bytes[kOpClasses] = {};
  for (const ProfileEvent& e : profiler.events())
    if (e.track == ProfileTrack::Kernels) {
      const int c = int(e.cost.op_class);
      ++calls[c], flops[c] += e.cost.flops, bytes[c] += e.cost.bytes;
    }
  for (int c = 0; c < kOpClasses; ++c) {
    const Meter::Totals& of = context.device.meter().totals(OpClass(c));
    EXPECT_EQ(calls[c], of.calls);
    EXPECT_EQ(flops[c], of.flops);
    EXPECT_EQ(bytes[c], of.bytes);
  }
}

TEST_P(L13_Profiler, ABackwardRangeKnowsItsForward) {
  ProfiledTraining training;
  Profiler profiler(context);
  profiler.begin();
  training.step();
  profiler.end();
  int64_t arrows = 0;
  double last = INFINITY;
  for (const ProfileEvent& e : profiler.events()) {
    if (e.track == ProfileTrack::Backward && e.parent >= 0 &&
        profiler.events()[size_t(e.parent)].track == ProfileTrack::Program) {
      EXPECT_GE(e.forward, 0) << "each op of the backward pass: " << *e.name;
    }
    if (e.forward < 0) continue;
    ++arrows;
    const ProfileEvent& forward = profiler.events()[size_t(e.forward)];
    EXPECT_EQ(*forward.name, *e.name);
    EXPECT_EQ(forward.track, ProfileTrack::Program);
    EXPECT_LT(forward.begin, last) << "the backward pass has the reverse order";
    last = forward.begin;
  }
  EXPECT_EQ(arrows, 2 + 2 * 10 + 3)
      << "embedding, positions; the ops of two blocks; the last norm, the logits, the loss";
}

// A checkpoint recomputes its ops within the backward pass.
TEST_P(L13_Profiler, WhatRunsAgainIsInTheBackwardPass) {
  ProfiledTraining training;
  training.model.segments = {{1, Keep::Input}, {1, Keep::All}};
  Profiler profiler(context);
  profiler.begin();
  training.step();
  profiler.end();
  const auto backward = paths(profiler, ProfileTrack::Backward);
  EXPECT_EQ(count_of(backward, "/backward/checkpoint/h.0"), 1);
  EXPECT_EQ(count_of(backward, "/backward/checkpoint/h.1"), 0);
  EXPECT_EQ(count_of(backward, "/backward/checkpoint/h.0/gelu"), 1);
  EXPECT_EQ(count_of(backward, "/backward/gelu"), 2);
}

TEST_P(L13_Profiler, CopiesSayHowManyBytes) {
  const Tensor x(context.device, {3, 5}, DType::F32, Kind::Data, "x");
  Profiler profiler(context);
  profiler.begin();
  const Tensor y = from_host(context.device, std::vector<float>(7), {7}, DType::F32, Kind::Data, "y");
  to_host<float>(x);
  profiler.end();
  ASSERT_EQ(paths(profiler, ProfileTrack::Program),
            (std::vector<std::string>{"/copy to the device", "/copy to the host"}));
  EXPECT_EQ(profiler.events()[0].cost.bytes, 28);
  EXPECT_EQ(profiler.events()[1].cost.bytes, 60);
}

TEST_P(L13_Profiler, BytesOfEachKindOverTime) {
  Profiler profiler(context);
  const Tensor before(context.device, {100}, DType::F32, Kind::Weight, "before");
  profiler.begin();
  {
    const Tensor x(context.device, {1000}, DType::F32, Kind::Data, "x");
    run_fill(x);
  }
  run_fill(before);
  profiler.end();
  ASSERT_GE(profiler.bytes().size(), 3u);
  EXPECT_EQ(profiler.bytes()[0].usage[Kind::Weight], 400);
  EXPECT_EQ(profiler.bytes()[0].usage[Kind::Data], 0);
  EXPECT_EQ(profiler.bytes()[1].usage[Kind::Data], 4000);
  EXPECT_EQ(profiler.bytes()[2].usage[Kind::Data], 0);
  for (size_t i = 1; i < profiler.bytes().size(); ++i)
    EXPECT_GE(profiler.bytes()[i].at, profiler.bytes()[i - 1].at);
}

TEST_P(L13_Profiler, ResultsAreTheSame) {
  std::vector<double> plain, profiled;
  for (std::vector<double>* losses : {&plain, &profiled}) {
    Context own(GetParam(), 3);
    ProfiledTraining training;
    Profiler profiler(own);
    if (losses == &profiled) profiler.begin();
    for (int i = 0; i < 3; ++i) losses->push_back(training.step());
  }
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(plain[i] == profiled[i] || std::isnan(plain[i])) << plain[i] << " and " << profiled[i];
}

}  // namespace
}  // namespace gradus
