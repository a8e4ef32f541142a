// Tables and number formats.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "src/core/table.h"
#include "tests/refusal_testing.h"

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

TEST(L01_CoreTable, AColumnWithOneWordIsLeft) {
  Table t({"first", "middle", "last"});
  t.row({"word", "1", "1"});
  t.row({"1", "word", "22"});
  t.row({"22", "22", "word"});
  EXPECT_EQ(text_of(t),
            "  first  middle  last\n"
            "  -----  ------  ----\n"
            "  word   1       1\n"
            "  1      word    22\n"
            "  22     22      word\n");
}

TEST(L01_CoreTable, AHeaderAloneAndWrongRows) {
  Table t({"a", "bb"});
  EXPECT_EQ(text_of(t), "  a  bb\n  -  --\n");
  EXPECT_THROW(t.row({"only one"}), Error);
  EXPECT_THROW(t.row({"1", "2", "3"}), Error);
  expect_refused("a row of 1 cells under a header of 2", [&] { t.row({"only one"}); });
  EXPECT_EQ(text_of(t), "  a  bb\n  -  --\n") << "what was refused is not there";
}

TEST(L01_CoreTable, WhatIsANumberAndWhatIsNot) {
  for (const char* number : {"7", "-7", "+7", "nan", "inf", "-inf", "", "1,024", "2e-5", "50.0 %", "3 ms"}) {
    Table t({"wide header"});
    t.row({number});
    const std::string space(11 - std::string(number).size(), ' ');
    EXPECT_EQ(text_of(t),
              "  wide header\n  -----------\n" + (*number ? "  " + space + number : std::string()) + "\n");
  }
  for (const char* word : {"-", "+", "x7", ".5", "-x", "nano", "-nan", " 7"}) {
    Table t({"wide header"});
    t.row({word});
    EXPECT_EQ(text_of(t), "  wide header\n  -----------\n  " + std::string(word) + "\n");
  }
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

// Three digits, and the next unit where rounding would reach it.
TEST(L01_CoreTable, SecondsOnBothSidesOfEveryUnit) {
  for (const auto& [seconds, text] : std::vector<std::pair<double, std::string>>{
           {850e-9, "850 ns"},    {1.234e-6, "1.23 us"}, {12.34e-6, "12.3 us"},   {123.4e-6, "123 us"},
           {999.4e-6, "999 us"},  {999.6e-6, "1.00 ms"}, {9.994e-3, "9.99 ms"},   {9.996e-3, "10.0 ms"},
           {99.94e-3, "99.9 ms"}, {99.96e-3, "100 ms"},  {0.9994, "999 ms"},      {0.9996, "1.00 s"},
           {4.56, "4.56 s"},      {12.3, "12.3 s"},      {59.94, "59.9 s"},       {59.96, "1 min 00 s"},
           {60, "1 min 00 s"},    {61.6, "1 min 02 s"},  {3599.4, "59 min 59 s"}, {3599.6, "1 h 00 min"},
           {3600, "1 h 00 min"},  {7499, "2 h 04 min"},  {360000, "100 h 00 min"}})
    EXPECT_EQ(seconds_text(seconds), text);
}

TEST(L01_CoreTable, NumbersOnBothSidesOfEveryForm) {
  EXPECT_EQ(bytes_text(1), "1 B");
  EXPECT_EQ(bytes_text(-1), "-1 B");
  EXPECT_EQ(bytes_text(-1023), "-1023 B");
  EXPECT_EQ(bytes_text(-1024), "-1.0 KiB");
  EXPECT_EQ(bytes_text(-1'048'525), "-1.0 MiB");
  EXPECT_EQ(bytes_text(1'048'524), "1023.9 KiB");  // 1023.949
  EXPECT_EQ(bytes_text(1'048'525), "1.0 MiB");     // 1023.950
  EXPECT_EQ(bytes_text(int64_t(5) << 38), "1.2 TiB");
  EXPECT_EQ(bytes_text(int64_t(7) << 49), "3.5 PiB");
  EXPECT_EQ(bytes_text(int64_t(1) << 60), "1.0 EiB");
  EXPECT_EQ(count_text(9999), "9,999");
  EXPECT_EQ(count_text(100'000), "100,000");
  EXPECT_EQ(count_text(-1'000'000), "-1,000,000");
  EXPECT_EQ(percent_text(0), "0.0 %");
  EXPECT_EQ(percent_text(1), "100.0 %");
  EXPECT_EQ(percent_text(-0.0625), "-6.2 %");
  EXPECT_EQ(percent_text(12.34), "1234.0 %");
  EXPECT_EQ(percent_text(NAN), "nan %");
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(-3), "-3");
  EXPECT_EQ(number_text(-999'999'999'999'999), "-999999999999999");
  EXPECT_EQ(number_text(-1e15), "-1e+15");
  EXPECT_EQ(number_text(INFINITY), "inf");
  EXPECT_EQ(number_text(12345.5), "1.235e+04");
  EXPECT_EQ(number_text(-2.5), "-2.5");
  EXPECT_EQ(number_text(1234.6), "1235");
  EXPECT_EQ(number_text(0.00012346), "0.0001235");
  EXPECT_EQ(number_text(999'999'999'999'999), "999999999999999");
  EXPECT_EQ(number_text(1e15), "1e+15");
  EXPECT_EQ(number_text(-INFINITY), "-inf");
}

// A column stands right only if every cell is a number; a header may be the widest cell.
TEST(L01_CoreTable, OneWordSetsTheColumnLeft) {
  Table t({"a", "first loss", "c", "d"});
  t.row({"-1", "nan", "7", "1,024"});
  t.row({"20", "2.5", "x7", "-inf"});
  EXPECT_EQ(text_of(t),
            "   a  first loss  c       d\n"
            "  --  ----------  --  -----\n"
            "  -1         nan  7   1,024\n"
            "  20         2.5  x7   -inf\n");
}

}  // namespace
}  // namespace gradus
