// The flags that every lesson has, its exit codes, and the machines that times are predicted for.
#include "src/train/lesson.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "src/io/atomic_file.h"
#include "tests/folder_testing.h"
#include "tests/lesson_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

Lesson made_from(const std::vector<std::string>& words) {
  Lesson lesson = lesson_with(words, "03_test", 300);
  lesson.args.done();
  return lesson;
}

TEST(L01_Lesson, CommonFlags) {
  const Lesson none = made_from({});
  EXPECT_EQ(none.name, "03_test");
  EXPECT_EQ(none.device, "auto");
  EXPECT_EQ(none.steps, 300);
  EXPECT_EQ(none.seed, 1u);
  EXPECT_EQ(none.memory, 0);
  EXPECT_EQ(none.json, "");
  EXPECT_EQ(none.print, "none");
  EXPECT_EQ(none.check, "none");
  EXPECT_EQ(none.plot("a.png"), "build/plots/a.png");
  const Lesson all = made_from({"--device=meta", "--steps=1", "--seed=9223372036854775807", "--memory=64MiB",
                                "--json=a.json", "--print=tape", "--check=nan"});
  EXPECT_EQ(all.device, "meta");
  EXPECT_EQ(all.steps, 1);
  EXPECT_EQ(all.seed, uint64_t(INT64_MAX));
  EXPECT_EQ(all.memory, 64 << 20);
  EXPECT_EQ(all.json, "a.json");
  EXPECT_EQ(all.print, "tape");
  EXPECT_EQ(all.check, "nan");
  EXPECT_EQ(made_from({"--seed=0"}).seed, 0u);
  EXPECT_EQ(made_from({"--steps=100000000"}).steps, 100'000'000);
  for (const std::string& device : device_names())
    EXPECT_EQ(made_from({"--device=" + device}).device, device);
  EXPECT_EQ(made_from({"--memory=1"}).memory, 1);
  for (const char* bad : {"--steps=0", "--steps=-1", "--steps=100000001", "--seed=-1", "--seed=1x",
                          "--device=gpu", "--print=tapes", "--check=inf", "--memory=-1", "--json="})
    EXPECT_THROW(made_from({bad}), BadArguments) << bad;
}

TEST(L02_Lesson, CheckIsForDevicesWithData) {
  for (const char* device : {"cpu", "meta"})
    for (const char* flag : {"--check=nan", "--check=none"}) {
      const LessonContext context(made_from({flag}), device, 0);
      EXPECT_EQ(context.check_finite, std::string(device) == "cpu" && std::string(flag) == "--check=nan");
    }
  Context context("cpu");
  EXPECT_FALSE(context.check_finite) << "by default";
}

TEST(L01_Lesson, AContextHasTheFlagsOrWhatIsSaidInstead) {
  const Lesson lesson = made_from({"--device=emu", "--seed=7", "--memory=64MiB"});
  LessonContext context(lesson);
  EXPECT_STREQ(context.device.name(), "emu");
  EXPECT_EQ(context.seed, 7u);
  EXPECT_EQ(context.device.allocator().budget(), 64 << 20);
  EXPECT_FALSE(context.check_finite);
  LessonContext other(lesson, "meta", 32 << 20);
  EXPECT_STREQ(other.device.name(), "meta");
  EXPECT_EQ(other.seed, 7u);
  EXPECT_EQ(other.device.allocator().budget(), 32 << 20);
  testing::internal::CaptureStdout();
  EXPECT_EQ(lesson.report().finish(""), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "\n03_test on meta:\n\nPASS\n");
}

class L01_LessonFiles : public FolderTest {};

// Every file that will be written is tried, and afterwards none exists or has changed.
TEST_F(L01_LessonFiles, DoneTriesEveryFile) {
  const std::string old = path("old.json"), none = path("none/a.txt");
  write_file(old, "as it was");
  Lesson unknown = lesson_with({"--stepz=3"}, "03_test");
  expect_refused("--stepz is unknown", [&] { unknown.done({}, {path("unknown/a.png")}); });
  EXPECT_FALSE(fs::exists(root_ / "unknown")) << "flags are checked first";
  Lesson lesson = lesson_with({"--json=" + old}, "03_test");
  lesson.done({"", path("a.txt")}, {"", path("plots/deep/a.png"), path("plots/b.png")});
  EXPECT_TRUE(fs::is_directory(root_ / "plots/deep"));
  EXPECT_TRUE(fs::is_empty(root_ / "plots/deep"));
  EXPECT_EQ(fs::file_size(old), 9u);
  EXPECT_EQ(files(), 2) << "old.json and plots";
  const auto done = [&](const std::string& json, const std::vector<std::string>& files,
                        const std::vector<std::string>& made) {
    return refusal([&] {
      Lesson trying = lesson_with({"--json=" + json}, "03_test");
      trying.done(files, made);
    });
  };
  EXPECT_NE(done(none, {}, {}).find(none + " cannot be written"), std::string::npos);
  EXPECT_NE(done(old, {path("a.txt"), none}, {}).find(none + " cannot be written"), std::string::npos);
  EXPECT_FALSE(fs::exists(root_ / "none"));
  const std::string below_a_file = old + "/a.png";
  EXPECT_NE(
      done(old, {}, {path("plots/b.png"), below_a_file}).find(below_a_file + ": its folder cannot be made"),
      std::string::npos);
  EXPECT_NE(done(old, {}, {path("plots")}).find("no regular file"), std::string::npos);
}

TEST(L01_Lesson, ExitCodesAndSentences) {
  const auto outcome = [](const std::function<int()>& body) {
    testing::internal::CaptureStderr();
    const int code = run_lesson(body);
    return std::to_string(code) + " " + testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(outcome([] { return 0; }), "0 ");
  EXPECT_EQ(outcome([] { return 1; }), "1 ");
  EXPECT_EQ(outcome([]() -> int { throw BadArguments("--x is unknown"); }), "2 --x is unknown\n");
  EXPECT_EQ(outcome([]() -> int { throw OutOfMemory("no memory"); }), "1 no memory\n");
  EXPECT_EQ(outcome([]() -> int { fail("a sentence"); }), "1 a sentence\n");
  EXPECT_EQ(outcome([]() -> int { throw std::runtime_error("other"); }), "1 other\n");
}

TEST(L01_Machine, FiguresAreThoseOfTheDataSheets) {
  struct Sheet {
    const char* name;
    double fp32, matrix16, bandwidth;  // TFLOP/s, TFLOP/s, GB/s
    int64_t memory;
  };
  const int64_t gib = int64_t(1) << 30;
  const Sheet sheets[] = {{"T4", 8.1, 65, 320, 16 * gib},
                          {"V100", 15.7, 125, 900, 32 * gib},
                          {"A100", 19.5, 312, 2039, 80 * gib},
                          {"H100", 67, 989.4, 3350, 80 * gib},
                          {"H200", 67, 989.4, 4800, 141'000'000'000}};
  ASSERT_EQ(published_machines().size(), std::size(sheets));
  for (size_t i = 0; i < std::size(sheets); ++i) {
    const Machine& m = published_machines()[i];
    EXPECT_EQ(m.name, sheets[i].name);
    EXPECT_NE(m.source.find(m.name), std::string::npos) << "the source must name the machine";
    EXPECT_NEAR(m.fp32_flops, sheets[i].fp32 * 1e12, 1);
    EXPECT_NEAR(m.matrix16_flops, sheets[i].matrix16 * 1e12, 1);
    EXPECT_NEAR(m.bandwidth, sheets[i].bandwidth * 1e9, 1);
    EXPECT_EQ(m.memory, sheets[i].memory);
  }
}

TEST(L03_Machine, MatrixUnitsAreForProductsIn16Bits) {
  const Machine m{"m", "", 1e9, 8e9, 1e6, 0, ""};
  const auto seconds = [&](OpClass c, int64_t flops, int64_t bytes, DType t, int times = 1) {
    Meter meter;
    meter.keep_trace();
    for (int i = 0; i < times; ++i) meter.count({c, flops, bytes, 0, t});
    return predicted_seconds(meter, m);
  };
  for (const DType t : {DType::BF16, DType::F16})
    EXPECT_DOUBLE_EQ(seconds(OpClass::Contraction, int64_t(8e9), 0, t), 1) << name_of(t);
  for (const DType t : {DType::F32, DType::F64})
    EXPECT_DOUBLE_EQ(seconds(OpClass::Contraction, int64_t(8e9), 0, t), 8) << name_of(t);
  for (const OpClass c : {OpClass::Elementwise, OpClass::Normalization, OpClass::Other})
    EXPECT_DOUBLE_EQ(seconds(c, int64_t(8e9), 0, DType::BF16), 8) << "does not use matrix units";
  EXPECT_DOUBLE_EQ(seconds(OpClass::Elementwise, 0, 2'000'000, DType::F32, 3), 6) << "three times";
  EXPECT_DOUBLE_EQ(seconds(OpClass::Contraction, int64_t(8e9), 5'000'000, DType::BF16), 5)
      << "the longer of the two times";
  EXPECT_EQ(seconds(OpClass::Other, 0, 0, DType::F32, 0), 0);
}

TEST(L01_Machine, ThisCpuHasOnePeakForAllTypesAndABandwidth) {
  const Machine m = measured_machine(Device("cpu"));
  EXPECT_EQ(m.name, "this CPU");
  EXPECT_GT(m.fp32_flops, 1e7);
  EXPECT_LT(m.fp32_flops, 1e15);
  EXPECT_EQ(m.matrix16_flops, m.fp32_flops);
  EXPECT_GT(m.bandwidth, 1e7);
  EXPECT_LT(m.bandwidth, 1e13);
}

TEST(L01_Machine, ThePeakIsMeasuredInMemoryOfItsOwn) {
  Device meta("meta");
  EXPECT_TRUE(std::isnan(measure_gemm_peak(meta)));
  Device cpu("cpu", 4 << 20);  // less than the matrices need
  const Usage before = cpu.meter().now();
  const double peak = measure_gemm_peak(cpu);
  EXPECT_GT(peak, 1e7);
  EXPECT_LT(peak, 1e15);
  EXPECT_EQ(cpu.meter().now(), before);
  EXPECT_EQ(cpu.meter().flops(), 0) << "the caller's meter must not count it";
}

}  // namespace
}  // namespace gradus
