// The meter and the device's fixed pieces of memory.
#include "src/memory/meter.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "src/memory/device.h"

namespace gradus {
namespace {

TEST(L01_Meter, RowsSumToAllocated) {
  Meter m;
  m.add(Kind::Weight, 1000, 1024);
  m.add(Kind::Data, 0, 512);
  m.add(Kind::Weight, 512, 512);
  EXPECT_EQ(m.now()[Kind::Weight], 1512);
  EXPECT_EQ(m.now()[Kind::Data], 0);
  EXPECT_EQ(m.now().rounding, 24 + 512);
  EXPECT_EQ(m.now().allocated(), 2048);
  m.remove(Kind::Weight, 1000, 1024);
  m.remove(Kind::Data, 0, 512);
  m.remove(Kind::Weight, 512, 512);
  EXPECT_EQ(m.now(), Usage{});
}

TEST(L01_Meter, PeakIsTheTableAtThePeak) {
  Meter m;
  m.add(Kind::Weight, 1000, 1024);
  m.add(Kind::Activation, 5000, 5120);
  const Usage peak = m.now();
  m.remove(Kind::Activation, 5000, 5120);
  m.add(Kind::Gradient, 4000, 4096);  // below the peak: the table must not mix the two instants
  EXPECT_EQ(m.at_peak(), peak);
  EXPECT_EQ(m.at_peak()[Kind::Gradient], 0);
  m.add(Kind::Temporary, 1024, 1024);  // equals the peak: the first instant stays
  EXPECT_EQ(m.at_peak(), peak);
  m.add(Kind::Temporary, 1, 512);
  EXPECT_EQ(m.at_peak(), m.now());
  EXPECT_EQ(m.at_peak().allocated(), 1024 + 4096 + 1024 + 512);
}

TEST(L01_Meter, AKindThatChangesDoesNotChangeThePast) {
  Meter m;
  m.add(Kind::Temporary, 100, 512);
  m.move(Kind::Temporary, Kind::Activation, 100);
  EXPECT_EQ(m.now()[Kind::Activation], 100);
  EXPECT_EQ(m.now().rounding, 412);
  EXPECT_EQ(m.at_peak()[Kind::Temporary], 100);
}

TEST(L01_Meter, ResetPeakStartsFromWhatIsAlive) {
  Meter m;
  m.add(Kind::Weight, 512, 512);
  m.add(Kind::Temporary, 512, 512);
  m.add_segment(2 << 20);
  m.add_segment(20 << 20);
  m.remove_segment(20 << 20);
  m.remove(Kind::Temporary, 512, 512);
  m.reset_peak();
  EXPECT_EQ(m.at_peak().allocated(), 512);
  EXPECT_EQ(m.peak_reserved(), 2 << 20);
  m.add(Kind::Data, 512, 512);
  EXPECT_EQ(m.at_peak()[Kind::Data], 512);
  EXPECT_EQ(m.device_requests(), 2);
}

TEST(L01_Meter, WorkIsSummedByClass) {
  Meter m;
  m.count({.op_class = OpClass::Contraction, .flops = 100, .bytes = 10});
  m.count({.op_class = OpClass::Contraction, .flops = 50, .bytes = 5});
  m.count({.op_class = OpClass::Elementwise, .flops = 7, .bytes = 70});
  EXPECT_EQ(m.work(OpClass::Contraction).calls, 2);
  EXPECT_EQ(m.work(OpClass::Contraction).flops, 150);
  EXPECT_EQ(m.work(OpClass::Contraction).bytes, 15);
  EXPECT_EQ(m.work(OpClass::Other).calls, 0);
  EXPECT_EQ(m.flops(), 157);
  m.reset_work();
  EXPECT_EQ(m.flops(), 0);
  EXPECT_EQ(m.work(OpClass::Elementwise).calls, 0);
}

TEST(L01_Meter, EveryKindHasItsOwnName) {
  std::set<std::string> names;
  for (int k = 0; k < kKinds; ++k) names.insert(name_of(Kind(k)));
  EXPECT_EQ(names.size(), size_t(kKinds));
  EXPECT_STREQ(name_of(Kind::Weight), "weight");
  EXPECT_STREQ(name_of(Kind::Vendor), "vendor");
  EXPECT_STREQ(name_of(Kind::Other), "other");
}

TEST(L01_Meter, KindsAreCalledAsInTheTable) {
  const char* const names[kKinds] = {"weight",    "master", "gradient", "optimizer", "activation",
                                     "temporary", "data",   "comm",     "vendor",    "other"};
  for (int k = 0; k < kKinds; ++k) EXPECT_STREQ(name_of(Kind(k)), names[k]);
  EXPECT_STREQ(name_of(Kind::Gradient), "gradient");
  EXPECT_STREQ(name_of(Kind::Activation), "activation");
  EXPECT_STREQ(name_of(Kind::Temporary), "temporary");
}

TEST(L01_Meter, ReservedItsPeakAndTheRequests) {
  Meter m;
  m.add_segment(2 << 20);
  m.add_segment(20 << 20);
  m.remove_segment(2 << 20);
  m.add_segment(1 << 20);
  EXPECT_EQ(m.reserved(), 21 << 20);
  EXPECT_EQ(m.peak_reserved(), 22 << 20);
  EXPECT_EQ(m.device_requests(), 3) << "what comes back is no request";
  m.reset_peak();
  EXPECT_EQ(m.peak_reserved(), 21 << 20);
  m.add_segment(1);
  EXPECT_EQ(m.peak_reserved(), (21 << 20) + 1);
  EXPECT_EQ(m.device_requests(), 4);
}

// The peak that begins anew is no lower than what is alive, and no higher.
TEST(L01_Meter, APeakResetIsReachedAgainByOneByteMore) {
  Meter m;
  m.add(Kind::Weight, 500, 512);
  m.add(Kind::Data, 1024, 1024);
  m.remove(Kind::Data, 1024, 1024);
  m.reset_peak();
  EXPECT_EQ(m.at_peak(), m.now());
  m.move(Kind::Weight, Kind::Master, 500);
  EXPECT_EQ(m.at_peak()[Kind::Weight], 500) << "a kind that changes is no new peak";
  EXPECT_EQ(m.now()[Kind::Master], 500);
  EXPECT_EQ(m.now()[Kind::Weight], 0);
  m.remove(Kind::Master, 500, 512);
  m.add(Kind::Comm, 512, 512);
  EXPECT_EQ(m.at_peak()[Kind::Weight], 500) << "as much as before is no new peak";
  m.add(Kind::Comm, 1, 512);
  EXPECT_EQ(m.at_peak()[Kind::Comm], 513);
  EXPECT_EQ(m.at_peak()[Kind::Weight], 0);
  EXPECT_EQ(m.at_peak().rounding, 511);
}

TEST(L01_Meter, ATraceCountsEachCostAndIsKeptIfAskedFor) {
  Meter m;
  const Cost a{OpClass::Contraction, 10, 20, 0, DType::F32}, b{OpClass::Contraction, 10, 20, 0, DType::BF16};
  m.count(a);
  EXPECT_TRUE(m.trace().empty());
  m.keep_trace();
  for (int i = 0; i < 3; ++i) m.count(a);
  m.count(b);
  EXPECT_EQ(m.trace(), (std::map<Cost, int64_t>{{a, 3}, {b, 1}}));
  EXPECT_FALSE(m.keeps_times());
  m.keep_times();
  EXPECT_TRUE(m.keeps_times());
  m.add_seconds(OpClass::Elementwise, 0.25);
  m.add_seconds(OpClass::Elementwise, 0.5);
  EXPECT_EQ(m.work(OpClass::Elementwise).seconds, 0.75);
  EXPECT_EQ(m.work(OpClass::Contraction).seconds, 0);
  EXPECT_EQ(m.work(OpClass::Contraction).calls, 5);
  m.add(Kind::Data, 1, 512);
  m.reset_work();
  EXPECT_TRUE(m.trace().empty());
  EXPECT_EQ(m.work(OpClass::Elementwise).seconds, 0);
  EXPECT_EQ(m.now()[Kind::Data], 1) << "memory is no work";
  m.count(b);
  EXPECT_EQ(m.trace().size(), 1u) << "a trace is still kept";
}

TEST(L01_Meter, ADeviceCountsItsOwnMemory) {
  Device device("cpu");
  EXPECT_STREQ(device.name(), "cpu");
  EXPECT_EQ(device.meter().now()[Kind::Other], int64_t(sizeof(StepScalars)));
  EXPECT_EQ(device.meter().now()[Kind::Vendor], 0);  // the workspace comes when first asked for
  EXPECT_EQ(device.scalars().loss_scale, 1.0f);
  EXPECT_EQ(device.scalars().step, 1);
  void* workspace = device.ctx().workspace;
  EXPECT_EQ(device.ctx().workspace, workspace);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace) % 64, 0u);
  EXPECT_EQ(device.meter().now()[Kind::Vendor], kWorkspaceBytes);
}

TEST(L01_Meter, ADevicesOwnBlocksHaveNamesAndOnlyMetaKeepsATrace) {
  for (const char* name : {"cpu", "emu", "meta"}) {
    Device device(name);
    device.ctx();
    std::string seen;
    for (const auto& [serial, segment] : device.allocator().segments())
      for (const Block* b = segment.first; b; b = b->next)
        if (!b->free) seen += b->name + " " + name_of(b->kind) + " " + b->shape.text() + ", ";
    EXPECT_EQ(seen, "step scalars other [], workspace vendor [" + std::to_string(kWorkspaceBytes) + "], ")
        << name;
    device.meter().count({.op_class = OpClass::Contraction, .flops = 100, .bytes = 10});
    EXPECT_EQ(device.meter().trace().size(), device.has_data() ? 0u : 1u) << name;
    EXPECT_FALSE(device.meter().keeps_times()) << name;
    device.synchronize();
  }
}

TEST(L01_Meter, DeviceCopiesAndRefusals) {
  Device device("cpu", 64 << 20);
  Block* block = device.allocator().allocate(12, Kind::Data, "three floats");
  const float in[3] = {1, 2, 3};
  float out[3] = {};
  device.copy_in(block->data(), in, sizeof in);
  device.copy_out(out, block->data(), sizeof out);
  EXPECT_EQ(out[2], 3.0f);
  device.copy_in(nullptr, nullptr, 0);
  device.copy_out(nullptr, nullptr, 0);
  EXPECT_THROW(device.allocator().allocate(64 << 20, Kind::Weight, "too much"), OutOfMemory);
  device.allocator().free(block);
  try {
    Device unknown("gpu9");
    FAIL() << "an unknown device was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("\"gpu9\" is unknown; there are auto, cpu"), std::string::npos)
        << e.what();
  }
  EXPECT_THROW(Device("cpu", 1 << 20), OutOfMemory);  // not even the step scalars fit
}

TEST(L01_Meter, EachKindHasARowOfItsOwnAndTheSumHasAll) {
  Meter m;
  for (int k = 0; k < kKinds; ++k) m.add(Kind(k), int64_t(1) << k, 512 + (int64_t(1) << k));
  for (int k = 0; k < kKinds; ++k) EXPECT_EQ(m.now()[Kind(k)], int64_t(1) << k) << name_of(Kind(k));
  EXPECT_EQ(m.now().rounding, 512 * kKinds);
  EXPECT_EQ(m.now().allocated(), 512 * kKinds + (1 << kKinds) - 1);
  EXPECT_EQ(m.at_peak(), m.now());
  for (int k = 0; k < kKinds; ++k) {
    m.remove(Kind(k), int64_t(1) << k, 512 + (int64_t(1) << k));
    EXPECT_EQ(m.now()[Kind(k)], 0) << name_of(Kind(k));
  }
  EXPECT_EQ(m.now(), Usage{});
  EXPECT_EQ(m.at_peak()[Kind::Other], 512);
}

TEST(L01_Meter, ThePeakKeepsItsKindsUntilItIsPassedOrReset) {
  Meter m;
  m.add(Kind::Temporary, 1000, 1024);
  m.move(Kind::Temporary, Kind::Activation, 1000);
  m.move(Kind::Activation, Kind::Activation, 1000);
  EXPECT_EQ(m.now()[Kind::Activation], 1000);
  EXPECT_EQ(m.at_peak()[Kind::Activation], 0);
  m.reset_peak();
  EXPECT_EQ(m.at_peak()[Kind::Activation], 1000) << "the kinds of the instant of the reset";
  EXPECT_EQ(m.at_peak()[Kind::Temporary], 0);
  EXPECT_EQ(m.at_peak().rounding, 24);
  m.remove(Kind::Activation, 1000, 1024);
  m.add(Kind::Data, 1024, 1024);
  EXPECT_EQ(m.at_peak()[Kind::Activation], 1000) << "an equal peak does not replace the first";
  m.add(Kind::Data, 0, 512);
  EXPECT_EQ(m.at_peak(), m.now()) << "a request of 0 bytes takes a block too";
  m.remove(Kind::Data, 0, 512);
  m.remove(Kind::Data, 1024, 1024);
  m.reset_peak();
  EXPECT_EQ(m.at_peak(), Usage{});
  m.add(Kind::Comm, 1, 512);
  EXPECT_EQ(m.at_peak()[Kind::Comm], 1);
}

}  // namespace
}  // namespace gradus
