// The meter: bytes by kind now and at the peak, what is reserved, and the work of kernels.
#include "src/memory/meter.h"

#include <gtest/gtest.h>

namespace gradus {
namespace {

TEST(L01_Meter, KindsAreCalledAsInTheTable) {
  const char* const names[kKinds] = {"weight",    "master", "gradient", "optimizer", "activation",
                                     "temporary", "data",   "comm",     "workspace", "other"};
  for (int k = 0; k < kKinds; ++k) EXPECT_STREQ(name_of(Kind(k)), names[k]);
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

TEST(L01_Meter, ReservedItsPeakAndTheRequests) {
  Meter m;
  m.add_segment(2 << 20);
  m.add_segment(20 << 20);
  m.remove_segment(2 << 20);
  m.add_segment(1 << 20);
  EXPECT_EQ(m.reserved(), 21 << 20);
  EXPECT_EQ(m.peak_reserved(), 22 << 20);
  EXPECT_EQ(m.device_requests(), 3) << "a freed segment must not count";
  m.reset_peak();
  EXPECT_EQ(m.peak_reserved(), 21 << 20);
  m.add_segment(1);
  EXPECT_EQ(m.peak_reserved(), (21 << 20) + 1);
  EXPECT_EQ(m.device_requests(), 4);
}

TEST(L01_Meter, WorkIsSummedByClassAndATraceIsKeptIfAskedFor) {
  Meter m;
  const Cost a{OpClass::Contraction, 10, 20, 0, DType::F32}, b{OpClass::Contraction, 10, 20, 0, DType::BF16};
  m.count(a);
  EXPECT_TRUE(m.trace().empty());
  m.keep_trace();
  for (int i = 0; i < 3; ++i) m.count(a);
  m.count(b);
  m.count({.op_class = OpClass::Elementwise, .flops = 7, .bytes = 70});
  EXPECT_EQ(m.trace().at(a), 3);
  EXPECT_EQ(m.trace().at(b), 1);
  EXPECT_EQ(m.totals(OpClass::Contraction).calls, 5);
  EXPECT_EQ(m.totals(OpClass::Contraction).flops, 50);
  EXPECT_EQ(m.totals(OpClass::Contraction).bytes, 100);
  EXPECT_EQ(m.totals(OpClass::Other).calls, 0);
  EXPECT_EQ(m.flops(), 57);
  EXPECT_FALSE(m.keeps_times());
  m.keep_times();
  EXPECT_TRUE(m.keeps_times());
  m.add_seconds(OpClass::Elementwise, 0.25);
  m.add_seconds(OpClass::Elementwise, 0.5);
  EXPECT_EQ(m.totals(OpClass::Elementwise).seconds, 0.75);
  EXPECT_EQ(m.totals(OpClass::Contraction).seconds, 0);
  m.add(Kind::Data, 1, 512);
  m.reset_totals();
  EXPECT_TRUE(m.trace().empty());
  EXPECT_EQ(m.flops(), 0);
  EXPECT_EQ(m.totals(OpClass::Elementwise).seconds, 0);
  EXPECT_EQ(m.now()[Kind::Data], 1) << "reset_totals() must not change memory";
  m.count(b);
  EXPECT_EQ(m.trace().size(), 1u) << "a trace is still kept";
}

}  // namespace
}  // namespace gradus
