// Tables and rooflines of profiles: sums by kernel and by op, and shares of the roofs.
#include "src/train/profile_table.h"

#include <cmath>
#include <sstream>

#include "src/ops/ops.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

Machine machine(double flops, double bandwidth, double matrix16 = 0) {
  Machine m{};
  m.fp32_flops = flops, m.matrix16_flops = matrix16, m.bandwidth = bandwidth;
  return m;
}

TEST(L13_Roofs, AKernelNeedsTheLongerOfTwoTimes) {
  const Machine m = machine(100, 10, 800);
  const auto least = [&](OpClass c, int64_t flops, int64_t bytes, DType t = DType::F32) {
    return least_seconds({c, flops, bytes, 0, t}, m);
  };
  EXPECT_DOUBLE_EQ(least(OpClass::Elementwise, 2000, 100), 20) << "2,000 FLOPs at 100 a second";
  EXPECT_DOUBLE_EQ(least(OpClass::Elementwise, 100, 2000), 200) << "2,000 bytes at 10 a second";
  EXPECT_DOUBLE_EQ(least(OpClass::Other, 0, 0), 0);
  for (const DType t : {DType::BF16, DType::F16}) {
    EXPECT_DOUBLE_EQ(least(OpClass::Contraction, 8000, 10, t), 10)
        << "a product of 16-bit numbers has the peak of matrix units";
    EXPECT_DOUBLE_EQ(least(OpClass::Elementwise, 8000, 10, t), 80) << "and no other kernel has";
  }
  EXPECT_DOUBLE_EQ(least(OpClass::Contraction, 8000, 10), 80);
}

TEST(L13_Roofs, EmulatedDevicesHaveNone) {
  for (const char* device : {"emu", "meta"}) {
    const Machine m = measured_machine(Device(device));
    EXPECT_TRUE(std::isnan(m.fp32_flops) && std::isnan(m.matrix16_flops) && std::isnan(m.bandwidth))
        << device;
  }
}

struct ScaledTwice {
  Context context{"meta"};
  Profiler profiler{context};
  Tensor x{context.device, {10}, DType::F32, Kind::Data, "x"};
  void profile() {
    profiler.begin();
    {
      Leaf leaf;
      attach(x, leaf, "x");
      Tape tape;
      const Tensor y = scale(add(x, x), 2), z = scale(y, 3);
      tape.backward(z, empty_like(z, "dy"));
    }
    profiler.end();
  }
};

TEST(L13_Exercises, RowsAreSumsOfKernels) {
  RecordProperty("exercise", "13.1");
  ScaledTwice run;
  run.profile();
  const Profiler& profiler = run.profiler;
  const auto find = [](const std::vector<ProfileRow>& rows, const std::string& name) {
    for (const ProfileRow& r : rows)
      if (r.name == name) return r;
    return ProfileRow{};
  };
  const Machine m = machine(1000, 10);
  const std::vector<ProfileRow> kernels = by_kernel(profiler, m), ops = by_op(profiler, m);
  const bool ranges_too = find(kernels, "backward").calls > 0;
  EXPECT_EQ(find(kernels, "scale").calls, 4)
      << "two calls in the forward pass, two in the backward pass"
      << usual_mistake({{ranges_too, "the events of ranges are counted as kernels"}});
  EXPECT_EQ(find(kernels, "scale").flops, 4 * cost::scale(10, DType::F32).flops);
  EXPECT_EQ(find(kernels, "scale").bytes, 4 * cost::scale(10, DType::F32).bytes);
  EXPECT_DOUBLE_EQ(find(kernels, "scale").least, 4 * 80 / 10.0);
  EXPECT_EQ(find(kernels, "add").calls, 1);
  EXPECT_EQ(find(ops, "scale").calls, 2);
  EXPECT_EQ(find(ops, "scale, backward").calls, 2);
  double seconds = 0, of_kernels = 0, of_ops = 0;
  for (const ProfileEvent& e : profiler.events())
    if (e.track == ProfileTrack::Kernels) seconds += e.end - e.begin;
  for (const ProfileRow& r : kernels) of_kernels += r.seconds;
  for (const ProfileRow& r : ops) of_ops += r.seconds;
  EXPECT_NEAR(of_kernels, seconds, 1e-12);
  EXPECT_NEAR(of_ops, seconds, 1e-12);
  for (size_t i = 1; i < kernels.size(); ++i) EXPECT_GE(kernels[i - 1].seconds, kernels[i].seconds);
}

std::string text_of(const Table& table) {
  std::ostringstream out;
  out << table;
  return out.str();
}

TEST(L13_ProfileTable, RatesSharesAndTheRest) {
  const std::vector<ProfileRow> rows{{"matmul", 10, int64_t(8e9), int64_t(2e9), 2, 1},
                                     {"gelu", 4, int64_t(1e9), int64_t(4e9), 1, 1.5},
                                     {"fill", 1, 0, int64_t(1e9), 0.5, 0.25},
                                     {"cast", 1, 0, int64_t(1e9), 0.5, 0.25}};
  EXPECT_EQ(text_of(profile_table("kernel", rows, 2)),
            "  kernel    kernel calls    time   share  GFLOP/s  GB/s  least time  fraction of roofline\n"
            "  --------  ------------  ------  ------  -------  ----  ----------  --------------------\n"
            "  matmul              10  2.00 s  50.0 %        4     1      1.00 s                50.0 %\n"
            "  gelu                 4  1.00 s  25.0 %        1     4      1.50 s               150.0 %\n"
            "  2 others             2  1.00 s  25.0 %        0     2      500 ms                50.0 %\n");
  for (const size_t most : {size_t(4), size_t(9)})
    EXPECT_EQ(text_of(profile_table("kernel", rows, most)).find("others"), std::string::npos);
  std::vector<ProfileRow> emulated = rows;
  for (ProfileRow& r : emulated) r.least = NAN;
  EXPECT_EQ(text_of(profile_table("kernel", emulated)).find("roof"), std::string::npos);
  EXPECT_NE(text_of(profile_table("kernel", {})).find("kernel"), std::string::npos);
}

TEST(L13_ProfileTable, OnTheRooflineIsWhatComputes) {
  const std::vector<ProfileRow> rows{{"matmul", 10, 8'000'000, 2'000'000, 2, 1},
                                     {"fill", 1, 0, 1'000'000, 1, 0.25},
                                     {"nothing", 1, 0, 0, 1, 0}};
  const Roofline r = roofline_of("title", rows, machine(7e6, 3e6));
  EXPECT_EQ(r.title, "title");
  EXPECT_EQ(r.flops, 7e6);
  EXPECT_EQ(r.bandwidth, 3e6);
  ASSERT_EQ(r.points.size(), 1u);
  EXPECT_EQ(r.points[0].name, "matmul");
  EXPECT_DOUBLE_EQ(r.points[0].intensity, 4);
  EXPECT_DOUBLE_EQ(r.points[0].flops, 4e6);
  EXPECT_DOUBLE_EQ(r.points[0].share, 0.5);
}

}  // namespace
}  // namespace gradus
