// --trace: several contexts of a run in one file.
#include "src/train/run_trace.h"

#include "tests/folder_testing.h"
#include "tests/io/trace_checker.h"
#include "tests/train/profiler_testing.h"

namespace gradus {
namespace {

struct L13_RunTrace : FolderTest {
  static void fill(Context& context, int times) {
    context.make_current();
    const Tensor x(context.device, {100'000}, DType::F32, Kind::Data, "x");
    for (int i = 0; i < times; ++i) run_fill(x);
  }
};

TEST_F(L13_RunTrace, ContextsAreProcessesThatMayStillRun) {
  Context first("cpu"), second("cpu");
  RunTrace trace(path("t.json"));
  trace.add(first, "cpu"), trace.add(second, "rank 1");
  fill(first, 1), fill(second, 2);
  second.ranges.begin("open");
  testing::internal::CaptureStdout();
  trace.write();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "\ntrace: " + path("t.json") + " (4 events)\n");
  second.ranges.end();
  fill(first, 5);
  const CheckedTrace t(read("t.json"));
  EXPECT_EQ(t.problems, std::vector<std::string>{});
  EXPECT_EQ(t.processes, (std::map<int64_t, std::string>{{0, "1: cpu"}, {1, "2: rank 1"}}));
  EXPECT_EQ(t.slices.at({0, 2}).size(), 1u);
  EXPECT_EQ(t.slices.at({1, 2}).size(), 2u);
  EXPECT_GT(t.slices.at({1, 2})[0].end, t.slices.at({1, 2})[0].begin) << "kernels are timed";
  EXPECT_GT(t.find("open")->end, t.find("open")->begin);
}

TEST_F(L13_RunTrace, TheContextsShareTheRoom) {
  Context first("meta"), second("meta");
  RunTrace trace(path("t.json"));
  trace.add(first, "first"), trace.add(second, "second");
  fill(first, 120'000), fill(second, 120'000);
  testing::internal::CaptureStdout();
  trace.write();
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "\ntrace: " + path("t.json") + " (200,000 events; later events are not in it)\n");
}

TEST_F(L13_RunTrace, AnErrorOnTheWayIsNoReasonToLoseIt) {
  testing::internal::CaptureStdout();
  try {
    Context context("cpu");
    RunTrace trace(path("t.json"));
    trace.add(context, "cpu");
    const ProfileRange range("outer");
    fill(context, 1);
    fail("something");
  } catch (const Error&) {
  }
  testing::internal::GetCapturedStdout();
  const CheckedTrace t(read("t.json"));
  EXPECT_EQ(t.problems, std::vector<std::string>{});
  EXPECT_TRUE(t.find("outer"));
  EXPECT_TRUE(t.find("fill"));
}

}  // namespace
}  // namespace gradus
