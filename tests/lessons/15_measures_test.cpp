// Lesson 15: its measurements.
#include <cmath>

#include "kernels/emu/traffic.h"
#include "lessons/15_flash_attention/compare.h"
#include "lessons/15_flash_attention/one_head.h"
#include "lessons/15_flash_attention/traffic.h"
#include "tests/lesson_testing.h"

namespace gradus {
namespace {

Lesson lesson_on(const char* device) {
  Lesson lesson = lesson_with({std::string("--device=") + device}, "15_test");
  lesson.done();
  return lesson;
}
AttentionSize with_length(int64_t T) { return {.B = 1, .T = T, .heads = {4, 2}, .D = 8}; }

TEST(L15_Measures, ProgramsAreComparedWithTheFirst) {
  const std::vector<ProgramRun> runs = run_programs(1);
  EXPECT_EQ(runs[0].difference, 0);
  for (const ProgramRun& run : runs)
    if (run.program == Program::Tiles) {
      EXPECT_GT(run.difference, 0) << "tiles add in a different order, so rounding errors differ";
    }
}

TEST(L15_Measures, GradientsAreThoseOfOneBackwardPassForAnyNumberOfRepeats) {
  const Lesson cpu = lesson_on("cpu");
  for (const AttentionOp op : {attention_plain, attention_flash})
    EXPECT_EQ(run_attention(cpu, "cpu", op, with_length(9), 3).dqkv,
              run_attention(cpu, "cpu", op, with_length(9), 0).dqkv);
}

TEST(L15_Measures, ThePeakHasAllTensorsAndNoWorkspace) {
  for (const char* device : {"cpu", "meta", "emu"}) {
    const Lesson on = lesson_on(device);
    const int64_t plain = run_attention(on, device, attention_plain, with_length(64), 1).peak,
                  flash = run_attention(on, device, attention_flash, with_length(64), 1).peak;
    EXPECT_GE(flash, 2 * with_length(64).qkv().numel() * 4)
        << "qkv and its gradient are allocated at the peak";
    EXPECT_GE(plain, flash) << "plain allocates the attention weights, too";
    EXPECT_LT(plain, 1 << 20) << "the peak must not contain the workspace";
  }
}

TEST(L15_Measures, OnlyPlainAttentionAboveTheLongestLengthIsNotTimed) {
  const std::vector<Compared> all =
      compare(lesson_on("cpu"), {with_length(4), with_length(5), with_length(6)}, 5);
  ASSERT_EQ(all.size(), 3u);
  for (const Compared& each : all) {
    EXPECT_EQ(std::isnan(each.plain.seconds), each.size.T > 5) << "T = " << each.size.T;
    EXPECT_FALSE(std::isnan(each.flash.seconds));
    EXPECT_EQ(each.plain.saved, saved_by_plain(each.size));
  }
}

TEST(L15_Measures, ErrorsAreThoseOfEachDtype) {
  const std::vector<AttentionErrors> errors = measure_errors(lesson_on("cpu"), with_length(40));
  ASSERT_EQ(errors.size(), 2u);
  for (const AttentionErrors& e : errors) {
    const double epsilon = e.dtype == DType::F32 ? 0x1p-24 : 0x1p-9;  // largest relative rounding error
    for (const int i : {0, 1})
      for (const double error : {e.plain[i], e.flash[i]}) {
        EXPECT_GT(error, epsilon * e.largest[i] / 16) << name_of(e.dtype) << ", " << i;
        EXPECT_LT(error, epsilon * e.largest[i] * 16) << name_of(e.dtype) << ", " << i;
      }
  }
}

TEST(L15_Measures, CountsDoNotContainEarlierKernels) {
  const Lesson emu = lesson_on("emu");
  const auto plain_forward = [&] { return count_moves(emu, with_length(0), {9})[0].plain[0]; };
  const Moved first = plain_forward();
  run_attention(emu, "emu", attention_plain, with_length(9), 1);  // must not be counted
  EXPECT_EQ(plain_forward(), first);
}

}  // namespace
}  // namespace gradus
