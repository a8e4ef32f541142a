// The progress line: on a terminal and elsewhere.
#include "src/core/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <thread>

#include "src/core/timing.h"

namespace gradus {
namespace {

std::vector<std::string> plain_lines(int64_t total, const std::vector<int64_t>& steps) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress("read", total, file);
    for (const int64_t done : steps) progress.step(done, 0.5);
  }
  std::rewind(file);
  std::vector<std::string> lines;
  char line[256];
  while (std::fgets(line, sizeof line, file)) {
    const std::string text = line;
    lines.push_back(text.substr(0, text.find("  ")));
  }
  std::fclose(file);
  return lines;
}

TEST(L01_CoreProgress, ALineComesWithTheFirstStepOfATenth) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(plain_lines(10, {1, 2, 3}), (Lines{"read 1/10", "read 2/10", "read 3/10"}));
  EXPECT_EQ(plain_lines(3, {1, 2, 3}), (Lines{"read 1/3", "read 2/3", "read 3/3"}));
  EXPECT_EQ(plain_lines(1000, {99, 100, 101, 199, 200, 999, 1000}),
            (Lines{"read 100/1000", "read 200/1000", "read 999/1000", "read 1000/1000"}));
  EXPECT_EQ(plain_lines(20, {0, 1, 1, 2, 2, 3}), Lines{"read 2/20"});
  EXPECT_EQ(plain_lines(1000, {500, 501, 502, 600}), (Lines{"read 500/1000", "read 600/1000"}));
  EXPECT_EQ(plain_lines(4, {5}), Lines{"read 4/4"}) << "never above the total";
  std::vector<int64_t> all(255);
  std::iota(all.begin(), all.end(), 1);
  const Lines lines = plain_lines(255, all);
  EXPECT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines[0], "read 26/255");
}

// The steps that are left take as long per step as those that are done.
TEST(L01_CoreProgress, TheTimeLeftIsThatOfTheStepsLeft) {
  std::FILE* file = std::tmpfile();
  Progress progress("work", 4, file);
  const double start = seconds_now();
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  progress.step(1, -0.25);
  const double passed = seconds_now() - start;
  progress.done();
  std::rewind(file);
  double loss = 0, left = 0;
  char unit[8] = "";
  ASSERT_EQ(std::fscanf(file, "work 1/4  loss %lf  %lf %7s left\n", &loss, &left, unit), 3);
  EXPECT_EQ(std::fgetc(file), EOF) << "a plain line has ended already";
  std::fclose(file);
  EXPECT_EQ(loss, -0.25);
  if (unit == std::string("ms")) left /= 1e3;
  EXPECT_GE(left, 0.995 * 3 * 0.15);
  EXPECT_LE(left, 1.005 * 3 * passed);
}

TEST(L01_CoreProgress, OddTotalsAreHarmless) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  for (const int64_t total : {int64_t(0), int64_t(-3), int64_t(1), INT64_MAX}) {
    Progress progress("x", total, file);
    for (const int64_t done : {int64_t(0), int64_t(1), int64_t(-5), INT64_MAX}) progress.step(done, NAN);
  }
  std::fclose(file);
}

// The text on a terminal; "" where there are no pseudo-terminals. The text that is written to `slave` is read
// from `master`.
std::string shown_by(int64_t total, const std::function<void(Progress&)>& work) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) return "";
  std::FILE* slave = std::fopen(ptsname(master), "w");
  {
    Progress progress("training", total, slave);
    work(progress);
    std::fputs("|", slave);
  }
  std::fclose(slave);
  std::string shown;
  char part[4096];
  for (ssize_t n; (n = read(master, part, sizeof part)) > 0;) shown.append(part, size_t(n));
  close(master);
  return shown;
}

TEST(L01_CoreProgress, ATerminalGetsOneLineThatIsEnded) {
  const std::string shown = shown_by(1000, [](Progress& progress) {
    for (int64_t i = 1; i <= 1000; ++i) progress.step(i, 1.25);
  });  // the destructor ends the line without done(), as after an exception
  if (shown.empty()) GTEST_SKIP() << "no pseudo-terminals here";
  EXPECT_EQ(shown[0], '\r');
  EXPECT_EQ(shown.find("[                              ] 1/1000  loss 1.2500"), 10u) << shown;
  EXPECT_NE(shown.find("[##############################] 1000/1000  loss 1.2500  0 s left\033[K"),
            std::string::npos)
      << shown;
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 1) << shown;
  EXPECT_EQ(shown.back(), '\n');
  EXPECT_LT(std::count(shown.begin(), shown.end(), '\r'), 10)
      << "the line is written at most five times per second";
}

TEST(L01_CoreProgress, DoneEndsTheLineOnceAndOnlyWhereThereIsOne) {
  const std::string half = shown_by(4, [](Progress& progress) {
    progress.step(2, 0);
    progress.done();
    progress.done();
  });
  if (half.empty()) GTEST_SKIP() << "no pseudo-terminals here";
  EXPECT_NE(half.find("\rtraining [###############               ] 2/4  loss 0.0000  "), std::string::npos)
      << half;
  EXPECT_TRUE(half.ends_with("\033[K\r\n|")) << "one newline, before what follows: " << half;
  EXPECT_EQ(shown_by(4, [](Progress& progress) { progress.done(); }), "|") << "nothing was shown";
}

}  // namespace
}  // namespace gradus
