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

TEST(L01_CoreTable, AHeaderAloneAndWrongRows) {
  Table t({"a", "bb"});
  EXPECT_EQ(text_of(t), "  a  bb\n  -  --\n");
  expect_refused("a row of 1 cells under a header of 2", [&] { t.row({"only one"}); });
  expect_refused("a row of 3 cells under a header of 2", [&] { t.row({"1", "2", "3"}); });
  EXPECT_EQ(text_of(t), "  a  bb\n  -  --\n") << "a rejected row was added";
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

// Three digits, and the next unit where rounding would reach it.
TEST(L01_CoreTable, Seconds) {
  for (const auto& [seconds, text] : std::vector<std::pair<double, std::string>>{{0, "0 s"},
                                                                                 {85e-9, "85 ns"},
                                                                                 {850e-9, "850 ns"},
                                                                                 {999.9e-9, "1.00 us"},
                                                                                 {1.234e-6, "1.23 us"},
                                                                                 {12.34e-6, "12.3 us"},
                                                                                 {123.4e-6, "123 us"},
                                                                                 {999.4e-6, "999 us"},
                                                                                 {999.6e-6, "1.00 ms"},
                                                                                 {9.994e-3, "9.99 ms"},
                                                                                 {9.996e-3, "10.0 ms"},
                                                                                 {99.94e-3, "99.9 ms"},
                                                                                 {99.96e-3, "100 ms"},
                                                                                 {0.9994, "999 ms"},
                                                                                 {0.9996, "1.00 s"},
                                                                                 {4.555, "4.55 s"},
                                                                                 {4.56, "4.56 s"},
                                                                                 {12.3, "12.3 s"},
                                                                                 {59.94, "59.9 s"},
                                                                                 {59.96, "1 min 00 s"},
                                                                                 {60, "1 min 00 s"},
                                                                                 {61.6, "1 min 02 s"},
                                                                                 {3599.4, "59 min 59 s"},
                                                                                 {3599.6, "1 h 00 min"},
                                                                                 {3600, "1 h 00 min"},
                                                                                 {7499, "2 h 04 min"},
                                                                                 {7500, "2 h 05 min"},
                                                                                 {360000, "100 h 00 min"},
                                                                                 {NAN, "?"},
                                                                                 {-1, "?"},
                                                                                 {INFINITY, "?"}})
    EXPECT_EQ(seconds_text(seconds), text);
}

TEST(L01_CoreTable, Bytes) {
  for (const auto& [bytes, text] :
       std::vector<std::pair<int64_t, std::string>>{{0, "0 B"},
                                                    {1, "1 B"},
                                                    {-1, "-1 B"},
                                                    {1023, "1023 B"},
                                                    {-1023, "-1023 B"},
                                                    {1024, "1.0 KiB"},
                                                    {-1024, "-1.0 KiB"},
                                                    {-1536, "-1.5 KiB"},
                                                    {1'048'524, "1023.9 KiB"},  // 1023.949
                                                    {1'048'525, "1.0 MiB"},  // 1023.950; never "1024.0 KiB"
                                                    {-1'048'525, "-1.0 MiB"},
                                                    {123'731'968, "118.0 MiB"},
                                                    {int64_t(3) << 29, "1.5 GiB"},
                                                    {int64_t(5) << 38, "1.2 TiB"},
                                                    {int64_t(7) << 49, "3.5 PiB"},
                                                    {int64_t(1) << 60, "1.0 EiB"},
                                                    {INT64_MAX, "8.0 EiB"},
                                                    {INT64_MIN, "-8.0 EiB"}})
    EXPECT_EQ(bytes_text(bytes), text);
}

TEST(L01_CoreTable, Counts) {
  for (const auto& [count, text] :
       std::vector<std::pair<int64_t, std::string>>{{0, "0"},
                                                    {999, "999"},
                                                    {-999, "-999"},
                                                    {1000, "1,000"},
                                                    {9999, "9,999"},
                                                    {100'000, "100,000"},
                                                    {-1'000'000, "-1,000,000"},
                                                    {124'439'808, "124,439,808"},
                                                    {INT64_MIN, "-9,223,372,036,854,775,808"}})
    EXPECT_EQ(count_text(count), text);
}

TEST(L01_CoreTable, SharesAndNumbers) {
  using Rows = std::vector<std::pair<double, std::string>>;
  for (const auto& [share, text] : Rows{{0, "0.0 %"},
                                        {1.0 / 3, "33.3 %"},
                                        {1, "100.0 %"},
                                        {-0.0625, "-6.2 %"},
                                        {12.34, "1234.0 %"},
                                        {NAN, "nan %"}})
    EXPECT_EQ(percent_text(share), text);
  for (const auto& [number, text] : Rows{{0, "0"},
                                         {3, "3"},
                                         {-3, "-3"},
                                         {124439808, "124439808"},
                                         {999'999'999'999'999, "999999999999999"},
                                         {-999'999'999'999'999, "-999999999999999"},
                                         {1e15, "1e+15"},
                                         {-1e15, "-1e+15"},
                                         {1e20, "1e+20"},
                                         {3.14159, "3.142"},
                                         {-2.5, "-2.5"},
                                         {1234.6, "1235"},
                                         {12345.5, "1.235e+04"},
                                         {0.00012346, "0.0001235"},
                                         {INFINITY, "inf"},
                                         {-INFINITY, "-inf"},
                                         {NAN, "nan"},
                                         {-NAN, "nan"}})
    EXPECT_EQ(number_text(number), text);
}

// A column is right-aligned only if every cell is a number; the header may be the widest cell.
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
