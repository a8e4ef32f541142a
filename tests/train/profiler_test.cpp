// The profiler of a context: what it records, on which track, when, and what it survives.
#include "src/train/profiler.h"

#include <thread>

#include "src/optim/optimizer.h"
#include "src/tensor/profile_range.h"
#include "src/train/dummy.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L13_Profiler : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
};
INSTANTIATE_TEST_SUITE_P(Devices, L13_Profiler, ::testing::ValuesIn([] {
                           std::vector<const char*> names = devices_with_data();
                           names.push_back("meta");
                           return names;
                         }()),
                         [](const auto& info) { return std::string(info.param); });

const TransformerConfig kTiny{.vocab = 20, .context = 5, .layers = 2, .heads = 2, .channels = 8};

struct Training {
  Training() { model.initialize(1); }
  double step() {
    const DummyBatch batch = dummy_batch(model.config, 2, 5);
    Tape tape;
    const Tensor loss = batch.loss(model);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.clip_grad_norm(1);
    optimizer.step(0.01);
    return item(loss);
  }
  Transformer model{kTiny};
  AdamW optimizer{model.parameters};
};

// "forward/h.1/linear", with the step if there is one.
std::string path_of(const Profiler& p, int64_t event) {
  if (event < 0) return "";
  const ProfileEvent& e = p.events()[size_t(event)];
  return path_of(p, e.parent) + "/" + *e.name;
}
std::vector<std::string> paths(const Profiler& p, ProfileTrack track) {
  std::vector<std::string> all;
  for (size_t i = 0; i < p.events().size(); ++i)
    if (p.events()[i].track == track) all.push_back(path_of(p, int64_t(i)));
  return all;
}
int64_t count(const std::vector<std::string>& of, const std::string& wanted) {
  return std::count(of.begin(), of.end(), wanted);
}
void run_fill(const Tensor& y) { be(y).fill(ctx(y, cost::fill(y.numel(), y.dtype())), y.numel(), Tensor(y).set(), 1.0); }

TEST_P(L13_Profiler, AStepIsPassesLayersOpsAndKernels) {
  Training training;
  training.step();
  Profiler profiler(context);
  profiler.begin();
  training.step();
  profiler.end();
  const auto program = paths(profiler, ProfileTrack::Program), backward = paths(profiler, ProfileTrack::Backward),
             kernels = paths(profiler, ProfileTrack::Kernels);
  for (const char* once : {"/data", "/forward", "/forward/h.0", "/forward/h.1", "/forward/embedding",
                           "/forward/cross_entropy", "/forward/h.1/gelu", "/backward", "/clip_grad_norm", "/update"})
    EXPECT_EQ(count(program, once), 1) << once;
  EXPECT_EQ(count(program, "/forward/h.0/linear"), 4);
  EXPECT_EQ(count(backward, "/backward/linear"), 4 * 2 + 1) << "and that of the logits";
  EXPECT_EQ(count(backward, "/backward/gelu"), 2);
  EXPECT_EQ(count(kernels, "/forward/h.1/gelu/gelu_fwd"), 1);
  EXPECT_EQ(count(kernels, "/backward/gelu/gelu_bwd"), 2);
  EXPECT_EQ(count(kernels, "/update/adamw"), 1);
  for (const std::string& p : backward) EXPECT_TRUE(p.starts_with("/backward/")) << p;
  for (const std::string& p : program) EXPECT_FALSE(p.starts_with("/backward/")) << p;
}

// Each range is within the one that it is in, and comes after what came before it.
TEST_P(L13_Profiler, TimesAreNestedAsTheRangesAre) {
  Training training;
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

TEST_P(L13_Profiler, KernelsAreThoseOfTheMeterWithTheirCosts) {
  Training training;
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
  Training training;
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
    EXPECT_LT(forward.begin, last) << "the backward pass goes the other way round";
    last = forward.begin;
  }
  EXPECT_EQ(arrows, 2 + 2 * 10 + 3) << "embedding, positions; the ops of two blocks; the last norm, the logits, the loss";
}

// A checkpoint runs its ops again within the backward pass.
TEST_P(L13_Profiler, WhatRunsAgainIsInTheBackwardPass) {
  Training training;
  training.model.segments = {{1, Keep::Input}, {1, Keep::All}};
  Profiler profiler(context);
  profiler.begin();
  training.step();
  profiler.end();
  const auto backward = paths(profiler, ProfileTrack::Backward);
  EXPECT_EQ(count(backward, "/backward/checkpoint/h.0"), 1);
  EXPECT_EQ(count(backward, "/backward/checkpoint/h.1"), 0);
  EXPECT_EQ(count(backward, "/backward/checkpoint/h.0/gelu"), 1);
  EXPECT_EQ(count(backward, "/backward/gelu"), 2);
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
    Training training;
    Profiler profiler(own);
    if (losses == &profiled) profiler.begin();
    for (int i = 0; i < 3; ++i) losses->push_back(training.step());
    EXPECT_EQ(own.device.meter().peak_reserved() > 0, true);
  }
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(plain[i] == profiled[i] || std::isnan(plain[i])) << plain[i] << " and " << profiled[i];
}

std::vector<std::string> steps_of(const Profiler& p) {
  std::vector<std::string> steps;
  for (const ProfileEvent& e : p.events())
    if (e.name->starts_with("step ")) steps.push_back(*e.name);
  return steps;
}

TEST_P(L13_Profiler, AScheduleKeepsTheStepsThatItSays) {
  struct Case {
    ProfileSchedule schedule;
    std::vector<std::string> kept;
  };
  for (const auto& [schedule, kept] :
       {Case{{0, 0, 1}, {"step 0"}}, Case{{1, 1, 2}, {"step 2", "step 3"}}, Case{{0, 2, 1}, {"step 2"}},
        Case{{2, 0, 2}, {"step 2", "step 3"}}, Case{{3, 2, 100}, {"step 5"}}, Case{{4, 2, 1}, {}},
        Case{{50, 0, 1}, {}}}) {
    Profiler profiler(context, schedule);
    for (int i = 0; i < 6; ++i) {
      profiler.next_step();
      const ProfileRange range(i < 3 ? "early" : "late");
      EXPECT_EQ(profiler.records(), i >= schedule.wait && i < schedule.wait + schedule.warm_up + schedule.record);
    }
    profiler.next_step();
    if (profiler.records()) profiler.end();
    EXPECT_EQ(steps_of(profiler).size() + (schedule.record == 100), kept.size() + (schedule.record == 100));
    EXPECT_EQ(steps_of(profiler), kept);
    EXPECT_EQ(count(paths(profiler, ProfileTrack::Program), "/early"), 0) << "each is in its step";
    for (const std::string& step : kept)
      EXPECT_EQ(count(paths(profiler, ProfileTrack::Program),
                      "/" + step + (step < "step 3" ? "/early" : "/late")), 1) << step;
    EXPECT_EQ(context.kernel_observer, nullptr);
  }
  for (const ProfileSchedule& wrong : {ProfileSchedule{-1, 0, 1}, {0, -1, 1}, {0, 0, 0}})
    expect_refused("steps to wait", [&] { Profiler profiler(context, wrong); });
}

TEST_P(L13_Profiler, RangesThatAreOpenAtEitherEnd) {
  Profiler profiler(context);
  {
    const ProfileRange before("before");
    profiler.begin();
    const ProfileRange within("within");
    profiler.end();
    const ProfileRange after("after");
  }
  EXPECT_EQ(paths(profiler, ProfileTrack::Program), std::vector<std::string>{"/within"});
  EXPECT_GT(profiler.events()[0].end, 0);
  {
    const ProfileRange outer("outer");
    profiler.begin();
  }  // the end of what it does not know
  { const ProfileRange next("next"); }
  profiler.end();
  EXPECT_EQ(paths(profiler, ProfileTrack::Program), (std::vector<std::string>{"/within", "/next"}));
}

TEST_P(L13_Profiler, AnErrorWithinRangesEndsThem) {
  Profiler profiler(context);
  profiler.begin();
  try {
    const ProfileRange outer("outer"), inner("inner");
    fail("something");
  } catch (const Error&) {
  }
  { const ProfileRange next("next"); }
  profiler.end();
  EXPECT_EQ(paths(profiler, ProfileTrack::Program), (std::vector<std::string>{"/outer", "/outer/inner", "/next"}));
}

// Who calls begin() and end() themselves may forget one, or close another thread's.
TEST_P(L13_Profiler, ARangeThatNobodyEndsEndsWithTheOneAroundIt) {
  struct Forgets : RangeListener {  // tells the profiler less than it should
    void began(size_t, const char*) override {}
    void ended(size_t) override {}
  };
  Profiler profiler(context);
  profiler.begin();
  context.ranges.begin("outer");
  context.ranges.begin("never ended");
  profiler.end();
  context.ranges.end(), context.ranges.end();
  EXPECT_EQ(profiler.events().size(), 2u);
  for (const ProfileEvent& e : profiler.events()) EXPECT_GE(e.end, e.begin);
}

TEST_P(L13_Profiler, ARangeOfAnotherThreadIsASentence) {
  Profiler profiler(context);
  profiler.begin();
  {
    const ProfileRange own("own");
    std::string said;
    std::thread([&] { said = refusal([] { const ProfileRange range("a worker's"); }); }).join();
    EXPECT_NE(said.find("the range 'a worker's' begins on another thread"), std::string::npos) << said;
    EXPECT_EQ(context.ranges.path(), "own");
  }
  profiler.end();
  EXPECT_EQ(paths(profiler, ProfileTrack::Program), std::vector<std::string>{"/own"});
}

TEST_P(L13_Profiler, BeginAndEndInTheRightOrder) {
  Profiler profiler(context);
  expect_refused("profiler: it does not record", [&] { profiler.end(); });
  profiler.begin();
  expect_refused("profiler: it records already", [&] { profiler.begin(); });
  profiler.end();
  profiler.begin();  // once more: what was recorded stays
  { const ProfileRange range("again"); }
  profiler.end();
  EXPECT_EQ(paths(profiler, ProfileTrack::Program), std::vector<std::string>{"/again"});
}

TEST_P(L13_Profiler, WhenItIsFullTheRestPasses) {
  const auto nothing = [] {};
  nothing();
  Training training;
  Profiler whole(context);
  whole.begin();
  const double loss = training.step();
  whole.end();
  Context other(GetParam(), 3);
  Training again;
  Profiler cut(other, {}, 50);
  cut.begin();
  EXPECT_FALSE(cut.full());
  const double same = again.step();
  again.step();
  cut.end();
  EXPECT_TRUE(cut.full());
  EXPECT_TRUE(loss == same || std::isnan(loss));
  ASSERT_EQ(cut.events().size(), 50u);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(*cut.events()[i].name, *whole.events()[i].name);
    EXPECT_GE(cut.events()[i].end, cut.events()[i].begin);
    if (cut.events()[i].track == ProfileTrack::Program && i == 0) {
      EXPECT_LT(cut.events()[i].end, whole.events()[i].end + 10);
    }
  }
}

// Two contexts, each with its profiler, in turns; and two profilers of one context.
TEST_P(L13_Profiler, EachIsOfItsOwnContext) {
  Context other(GetParam(), 4);
  Profiler first(context), second(other), both(other);
  first.begin(), second.begin(), both.begin();
  for (int i = 0; i < 3; ++i) {
    context.make_current();
    {
      const ProfileRange range("first's");
      run_fill(Tensor(context.device, {5}, DType::F32, Kind::Data, "x"));
    }
    other.make_current();
    const ProfileRange range("second's");
    run_fill(Tensor(other.device, {5}, DType::F32, Kind::Data, "x"));
    run_fill(Tensor(other.device, {5}, DType::F32, Kind::Data, "x"));
  }
  first.end(), second.end(), both.end();
  EXPECT_EQ(paths(first, ProfileTrack::Kernels), std::vector<std::string>(3, "/first's/fill"));
  EXPECT_EQ(paths(second, ProfileTrack::Kernels), std::vector<std::string>(6, "/second's/fill"));
  EXPECT_EQ(paths(both, ProfileTrack::Kernels), std::vector<std::string>(6, "/second's/fill"));
  EXPECT_EQ(paths(both, ProfileTrack::Program), std::vector<std::string>(3, "/second's"));
}

TEST_P(L13_Profiler, ItEndsWithItsContextAndKeepsWhatItHas) {
  auto own = std::make_unique<Context>(GetParam(), 5);
  Profiler profiler(*own);
  profiler.begin();
  own->ranges.begin("open");
  run_fill(Tensor(own->device, {5}, DType::F32, Kind::Data, "x"));
  own = nullptr;
  EXPECT_FALSE(profiler.records());
  EXPECT_EQ(paths(profiler, ProfileTrack::Kernels), std::vector<std::string>{"/open/fill"});
  EXPECT_GT(profiler.events()[0].end, 0);
  EXPECT_GT(profiler.events()[1].end, 0);
}

TEST_P(L13_Profiler, AKernelThatFailsIsRecordedAndTheNextIsTimed) {
  Profiler profiler(context);
  profiler.begin();
  const Tensor x(context.device, {5}, DType::F32, Kind::Data, "x");
  struct Refuses : KernelObserver {
    void call(std::unique_ptr<KernelCall> call) override {
      if (refuses) fail("no kernel today");
      make(*call);
    }
    using KernelObserver::observe;
    bool refuses = true;
  };
  profiler.end();
  Refuses below;
  below.observe(context);
  profiler.begin();
  expect_refused("no kernel today", [&] { run_fill(x); });
  below.refuses = false;
  run_fill(x);
  profiler.end();
  ASSERT_EQ(profiler.events().size(), 2u);
  for (const ProfileEvent& e : profiler.events()) EXPECT_LE(e.begin, e.end);
  EXPECT_GE(profiler.events()[1].begin, profiler.events()[0].end);
}

}  // namespace
}  // namespace gradus
