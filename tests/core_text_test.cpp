// Tables, number formats and the progress line.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "kernels/check.h"
#include "src/core/progress.h"
#include "src/core/table.h"

namespace gradus {
namespace {

std::string text_of(const Table& table) {
  std::ostringstream out;
  out << table;
  return out.str();
}

TEST(L01_CoreTable, AlignsNumbersRightAndWordsLeft) {
  Table t({"op", "ms", "size"});
  t.row({"gelu", "9.5", "1.0 MiB"});
  t.row({"größe", "120", "12.5 MiB"});
  t.row({"empty", "", "-1"});
  EXPECT_EQ(text_of(t),
            "  op      ms      size\n"
            "  -----  ---  --------\n"
            "  gelu   9.5   1.0 MiB\n"
            "  größe  120  12.5 MiB\n"
            "  empty             -1\n");
}

TEST(L01_CoreTable, AHeaderAloneAndWrongRows) {
  Table t({"a", "bb"});
  EXPECT_EQ(text_of(t), "  a  bb\n  -  --\n");
  EXPECT_THROW(t.row({"only one"}), Error);
  EXPECT_THROW(t.row({"1", "2", "3"}), Error);
}

TEST(L01_CoreTable, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(-1536), "-1.5 KiB");
  EXPECT_EQ(bytes_text((1 << 20) - 1), "1.0 MiB");  // never "1024.0 KiB"
  EXPECT_EQ(bytes_text(123'731'968), "118.0 MiB");
  EXPECT_EQ(bytes_text(int64_t(3) << 29), "1.5 GiB");
  EXPECT_EQ(bytes_text(INT64_MAX), "8.0 EiB");
  EXPECT_EQ(bytes_text(INT64_MIN), "-8.0 EiB");
}

TEST(L01_CoreTable, CountsSharesNumbers) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(-999), "-999");
  EXPECT_EQ(count_text(1000), "1,000");
  EXPECT_EQ(count_text(-123456), "-123,456");
  EXPECT_EQ(count_text(124'439'808), "124,439,808");
  EXPECT_EQ(count_text(INT64_MIN), "-9,223,372,036,854,775,808");
  EXPECT_EQ(percent_text(0.5), "50.0 %");
  EXPECT_EQ(percent_text(1.0 / 3), "33.3 %");
  EXPECT_EQ(number_text(3), "3");
  EXPECT_EQ(number_text(124439808), "124439808");
  EXPECT_EQ(number_text(3.14159), "3.142");
  EXPECT_EQ(number_text(1e20), "1e+20");
  EXPECT_EQ(number_text(NAN), "nan");
}

TEST(L01_CoreTable, Seconds) {
  EXPECT_EQ(seconds_text(0), "0 s");
  EXPECT_EQ(seconds_text(85e-9), "85 ns");
  EXPECT_EQ(seconds_text(999.9e-9), "1.00 us");
  EXPECT_EQ(seconds_text(12.34e-3), "12.3 ms");
  EXPECT_EQ(seconds_text(0.99999), "1.00 s");
  EXPECT_EQ(seconds_text(4.555), "4.55 s");
  EXPECT_EQ(seconds_text(59.99), "1 min 00 s");
  EXPECT_EQ(seconds_text(200), "3 min 20 s");
  EXPECT_EQ(seconds_text(7500), "2 h 05 min");
  EXPECT_EQ(seconds_text(NAN), "?");
  EXPECT_EQ(seconds_text(-1), "?");
  EXPECT_EQ(seconds_text(INFINITY), "?");
}

TEST(L01_CoreProgress, PlainLinesEveryTenth) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    Progress progress("training", 255, file);
    for (int64_t i = 1; i <= 255; ++i) progress.step(i, 2.5);
    progress.done();
  }
  std::rewind(file);
  std::vector<std::string> lines;
  char line[256];
  while (std::fgets(line, sizeof line, file)) lines.push_back(line);
  std::fclose(file);
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_EQ(lines[0].find("training 26/255  loss 2.5000  "), 0u) << lines[0];
  EXPECT_EQ(lines[9], "training 255/255  loss 2.5000  0 s left\n");
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

// A pseudo-terminal stands for the user's: what is written to `slave` is read from `master`.
TEST(L01_CoreProgress, ATerminalGetsOneLineThatIsEnded) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) GTEST_SKIP() << "no pseudo-terminals here";
  std::FILE* slave = std::fopen(ptsname(master), "w");
  ASSERT_NE(slave, nullptr);
  {
    Progress progress("training", 1000, slave);
    for (int64_t i = 1; i <= 1000; ++i) progress.step(i, 1.25);
  }  // ends the line although done() was not called, as when an exception passes
  std::fclose(slave);
  std::string shown;
  char part[4096];
  for (ssize_t n; (n = read(master, part, sizeof part)) > 0;) shown.append(part, size_t(n));
  close(master);
  ASSERT_FALSE(shown.empty());
  EXPECT_EQ(shown[0], '\r');
  EXPECT_NE(shown.find("[##############################] 1000/1000  loss 1.2500  0 s left"),
            std::string::npos)
      << shown;
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 1) << shown;
  EXPECT_EQ(shown.back(), '\n');
  EXPECT_LT(std::count(shown.begin(), shown.end(), '\r'), 10) << "shown at most five times a second";
}

}  // namespace
}  // namespace gradus
