// The arguments that an op passes to a kernel: scratch memory that lives as long as the call, a cost that is
// counted, and the time of the call.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "src/core/timing.h"
#include "src/tensor/call.h"
#include "src/tensor/context.h"
#include "src/tensor/profile_range.h"
#include "src/tensor/tensor.h"

namespace gradus {
namespace {

struct L02_Call : ::testing::Test {
  Context context{"cpu"};
  Device& device = context.device;
  const Meter& meter = device.meter();
};

TEST_F(L02_Call, ScratchLivesUntilTheStatementEnds) {
  device.ctx();  // allocates the workspace
  device.allocator().keep_history();
  const Tensor x(device, {4}, DType::F32, Kind::Data, "x");
  const Usage before = meter.now();
  {
    const Call call(device, {.scratch = 1000});
    const Ctx& ctx = call;
    ASSERT_NE(ctx.scratch, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(ctx.scratch) % 64, 0u);
    static_cast<char*>(ctx.scratch)[999] = 1;
    EXPECT_NE(ctx.workspace, nullptr);
    EXPECT_NE(ctx.scalars, nullptr);
    EXPECT_EQ(meter.now()[Kind::Temporary], before[Kind::Temporary] + 1000);
    const Call inner(device, {.scratch = 8});
    EXPECT_NE(static_cast<const Ctx&>(inner).scratch, ctx.scratch);
  }
  EXPECT_EQ(meter.now(), before);
  const auto& history = device.allocator().history();
  const auto scratch =
      std::find_if(history.begin(), history.end(), [](const auto& e) { return e.requested == 1000; });
  ASSERT_NE(scratch, history.end());
  EXPECT_EQ(scratch->name, "scratch");
  EXPECT_EQ(scratch->kind, Kind::Temporary);

  const size_t events = history.size();
  const auto used = [](const Ctx& c) { return c.scratch; };
  EXPECT_NE(used(ctx(x, {.scratch = 1})), nullptr);
  EXPECT_EQ(meter.now(), before) << "the statement must free its scratch memory";
  EXPECT_EQ(history.size(), events + 2);
  EXPECT_EQ(used(ctx(x, {.scratch = 0})), nullptr) << "a cost without scratch gets none";
  EXPECT_EQ(history.size(), events + 2) << "nothing may be allocated";
  EXPECT_THROW([](const Ctx&) { fail("a kernel"); }(ctx(x, {.scratch = 4096})), Error);
  EXPECT_EQ(meter.now(), before) << "a failing kernel must free it, too";
}

TEST_F(L02_Call, ItsCostIsCounted) {
  for (int c = 0; c < kOpClasses; ++c) Call(device, {OpClass(c), 10 * (c + 1), 7 * (c + 1), 64});
  for (int c = 0; c < kOpClasses; ++c) {
    EXPECT_EQ(meter.totals(OpClass(c)).calls, 1);
    EXPECT_EQ(meter.totals(OpClass(c)).flops, 10 * (c + 1));
    EXPECT_EQ(meter.totals(OpClass(c)).bytes, 7 * (c + 1));
    EXPECT_EQ(meter.totals(OpClass(c)).seconds, 0) << "times are kept only if asked for";
  }
}

TEST_F(L02_Call, TimesAreKeptByClassIfAskedFor) {
  device.meter().keep_times();
  const double start = seconds_now();
  for (int i = 0; i < 2; ++i) {
    const Call call(device, {.op_class = OpClass::Normalization});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const double both = seconds_now() - start;
  EXPECT_GE(meter.totals(OpClass::Normalization).seconds, 0.04);
  EXPECT_LE(meter.totals(OpClass::Normalization).seconds, both);
  EXPECT_EQ(meter.totals(OpClass::Contraction).seconds, 0);
  EXPECT_EQ(meter.totals(OpClass::Elementwise).seconds, 0);
  EXPECT_EQ(meter.totals(OpClass::Other).seconds, 0);
  device.meter().reset_totals();
  EXPECT_EQ(meter.totals(OpClass::Normalization).seconds, 0);
}

TEST_F(L02_Call, RangesEndWithTheirBlockAlsoAfterAnError) {
  const Ranges& ranges = context.ranges;
  {
    const ProfileRange outer("outer");
    try {
      {
        const ProfileRange inner("inner");
        EXPECT_EQ(ranges.path(), "outer/inner");
      }
      const ProfileRange second("second");
      EXPECT_EQ(ranges.path(), "outer/second");
      EXPECT_EQ(device.allocator().range(), "outer/second");
      const ProfileRange third("third");
      EXPECT_EQ(ranges.path(), "outer/second/third");
      fail("something");
    } catch (const Error&) {
    }
    EXPECT_EQ(ranges.path(), "outer");
  }
  EXPECT_EQ(ranges.path(), "");
}

TEST_F(L02_Call, WhoeverListensIsToldOfEachBeginAndEnd) {
  struct Told : RangeListener {
    std::string text;
    void began(size_t depth, const char* name) override { text += std::to_string(depth) + name + ", "; }
    void ended(size_t depth) override { text += std::to_string(depth) + " ends, "; }
    void noted(RangeNote what, int64_t value) override {
      text += (what == RangeNote::Bytes ? "bytes " : "node ") + std::to_string(value) + ", ";
    }
  };
  Told first, second;
  context.ranges.add(first);
  {
    const ProfileRange outer("outer");
    context.ranges.add(second);
    const ProfileRange inner("inner", 7);
    context.ranges.note(RangeNote::Node, 3);
  }
  context.ranges.remove(first);
  { const ProfileRange again("again"); }
  EXPECT_EQ(first.text, "0outer, 1inner, bytes 7, node 3, 1 ends, 0 ends, ");
  EXPECT_EQ(second.text, "1inner, bytes 7, node 3, 1 ends, 0 ends, 0again, 0 ends, ");
}

}  // namespace
}  // namespace gradus
