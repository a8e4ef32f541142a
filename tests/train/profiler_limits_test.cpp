// When a profiler records, and in what conditions it works: schedules, open ranges, errors, threads, contexts
// that end.
#include <optional>
#include <thread>

#include "tests/refusal_testing.h"
#include "tests/train/profiler_testing.h"

namespace gradus {
namespace {

struct L13_ProfilerLimits : ProfilerTest {};
ON_ALL_DEVICES(L13_ProfilerLimits);

std::vector<std::string> steps_of(const Profiler& p) {
  std::vector<std::string> steps;
  for (const ProfileEvent& e : p.events())
    if (e.name->starts_with("step ")) steps.push_back(*e.name);
  return steps;
}

TEST_P(L13_ProfilerLimits, AScheduleKeepsTheStepsThatItSays) {
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
      EXPECT_EQ(profiler.records(),
                i >= schedule.wait && i < schedule.wait + schedule.warm_up + schedule.record);
    }
    profiler.end();
    EXPECT_EQ(steps_of(profiler), kept);
    EXPECT_EQ(count_of(paths(profiler, ProfileTrack::Program), "/early"), 0) << "each must be in its step";
    for (const std::string& step : kept)
      EXPECT_EQ(count_of(paths(profiler, ProfileTrack::Program),
                         "/" + step + (step < "step 3" ? "/early" : "/late")),
                1)
          << step;
    EXPECT_EQ(context.kernel_observer, nullptr);
  }
  for (const ProfileSchedule& wrong : {ProfileSchedule{-1, 0, 1}, {0, -1, 1}, {0, 0, 0}})
    expect_refused("steps to wait", [&] { Profiler profiler(context, wrong); });
}

TEST_P(L13_ProfilerLimits, RangesThatAreOpenAtEitherEnd) {
  Profiler profiler(context);
  {
    const ProfileRange before("before");
    profiler.begin();
    const ProfileRange within("within");
    profiler.end();
    const ProfileRange after("after");
  }
  EXPECT_EQ(paths(profiler, ProfileTrack::Program), std::vector<std::string>{"/within"});
  EXPECT_GT(profiler.events()[0].end, profiler.events()[0].begin);
  {
    const ProfileRange outer("outer");
    profiler.begin();
  }  // the end of a range that it has not recorded
  { const ProfileRange next("next"); }
  profiler.end();
  EXPECT_EQ(paths(profiler, ProfileTrack::Program), (std::vector<std::string>{"/within", "/next"}));
}

TEST_P(L13_ProfilerLimits, AnErrorWithinRangesEndsThem) {
  Profiler profiler(context);
  profiler.begin();
  try {
    const ProfileRange outer("outer"), inner("inner");
    fail("something");
  } catch (const Error&) {
  }
  { const ProfileRange next("next"); }
  profiler.end();
  EXPECT_EQ(paths(profiler, ProfileTrack::Program),
            (std::vector<std::string>{"/outer", "/outer/inner", "/next"}));
}

TEST_P(L13_ProfilerLimits, ARangeThatNobodyEndsEndsWithTheRecording) {
  Profiler profiler(context);
  profiler.begin();
  context.ranges.begin("outer");
  context.ranges.begin("never ended");
  run_fill(Tensor(context.device, {100'000}, DType::F32, Kind::Data, "x"));
  profiler.end();
  context.ranges.end(), context.ranges.end();
  ASSERT_EQ(profiler.events().size(), 3u);
  for (int i = 0; i < 2; ++i) EXPECT_GT(profiler.events()[size_t(i)].end, profiler.events()[size_t(i)].begin);
}

// A listener that comes later rejects a range: the range ends at once.
TEST_P(L13_ProfilerLimits, ARangeThatAnotherListenerRefusesIsNotAroundTheNext) {
  struct Refuses : RangeListener {
    void began(size_t, const char* name) override { check(name != std::string("x"), "not this one"); }
    void ended(size_t) override {}
  } refuses;
  Profiler profiler(context);
  profiler.begin();
  context.ranges.add(refuses);
  expect_refused("not this one", [] { const ProfileRange range("x"); });
  { const ProfileRange range("y"); }
  context.ranges.remove(refuses);
  profiler.end();
  EXPECT_EQ(paths(profiler, ProfileTrack::Program), (std::vector<std::string>{"/x", "/y"}));
  EXPECT_EQ(context.ranges.path(), "");
}

TEST_P(L13_ProfilerLimits, AStepEndsWhatIsOpenInIt) {
  Profiler profiler(context, {0, 0, 2});
  profiler.next_step();
  std::optional<ProfileRange> epoch(std::in_place, "epoch");
  profiler.next_step();
  { const ProfileRange range("y"); }
  profiler.end();
  epoch.reset();
  ASSERT_EQ(profiler.events().size(), 4u);
  const ProfileEvent &first = profiler.events()[0], &open = profiler.events()[1];
  EXPECT_EQ(*open.name, "epoch");
  EXPECT_LE(open.end, first.end);
  EXPECT_GT(open.end, open.begin);
  EXPECT_EQ(event_path(profiler, 3), "/step 1/y");
}

TEST_P(L13_ProfilerLimits, ARangeOfAnotherThreadIsASentence) {
  Profiler profiler(context);
  profiler.begin();
  {
    const ProfileRange own("own");
    std::string said;
    std::thread([&] { said = refusal([] { const ProfileRange range("a worker's"); }); }).join();
    EXPECT_NE(said.find("the range 'a worker's' begins on a thread that"), std::string::npos) << said;
    EXPECT_EQ(context.ranges.path(), "own");
  }
  profiler.end();
  EXPECT_EQ(paths(profiler, ProfileTrack::Program), std::vector<std::string>{"/own"});
}

TEST_P(L13_ProfilerLimits, BeginAndEndInTheRightOrder) {
  Profiler profiler(context);
  expect_refused("profiler: it does not record", [&] { profiler.end(); });
  profiler.begin();
  expect_refused("profiler: it records already", [&] { profiler.begin(); });
  profiler.end();
  profiler.begin();  // a second time: what was recorded stays
  { const ProfileRange range("again"); }
  profiler.end();
  EXPECT_EQ(paths(profiler, ProfileTrack::Program), std::vector<std::string>{"/again"});
}

TEST_P(L13_ProfilerLimits, WhenThereIsNoRoomTheRestPasses) {
  ProfiledTraining training;
  Profiler whole(context);
  whole.begin();
  const double loss = training.step();
  whole.end();
  Context other(GetParam(), 3);
  ProfiledTraining again;
  const auto room = std::make_shared<int64_t>(50);
  Profiler cut(other, {}, room);
  cut.begin();
  EXPECT_FALSE(cut.full());
  const double same = again.step();
  again.step();
  cut.end();
  EXPECT_TRUE(cut.full());
  EXPECT_TRUE(loss == same || std::isnan(loss)) << "the kernels must run";
  ASSERT_EQ(cut.events().size(), 50u);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(*cut.events()[i].name, *whole.events()[i].name);
    EXPECT_GE(cut.events()[i].end, cut.events()[i].begin);
  }
  Profiler shares(other, {}, room);
  shares.begin();
  again.step();
  shares.end();
  EXPECT_TRUE(shares.events().empty()) << "profilers that share the room have none left, too";
}

// Two contexts, alternating, each with its profiler; and two profilers of one context.
TEST_P(L13_ProfilerLimits, EachIsOfItsOwnContext) {
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

TEST_P(L13_ProfilerLimits, ItEndsWithItsContextAndKeepsWhatItHas) {
  auto own = std::make_unique<Context>(GetParam(), 5);
  Profiler profiler(*own);
  profiler.begin();
  own->ranges.begin("open");
  run_fill(Tensor(own->device, {5}, DType::F32, Kind::Data, "x"));
  own = nullptr;
  EXPECT_FALSE(profiler.records());
  expect_refused("profiler: its context has ended", [&] { profiler.begin(); });
  EXPECT_EQ(paths(profiler, ProfileTrack::Kernels), std::vector<std::string>{"/open/fill"});
  EXPECT_GT(profiler.events()[0].end, profiler.events()[0].begin);
}

TEST_P(L13_ProfilerLimits, AKernelThatFailsIsRecordedAndTheNextIsTimed) {
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
