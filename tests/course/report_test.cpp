// Reading GoogleTest's report, and shortening failures for students.
#include "tests/course/report.h"

#include <gtest/gtest.h>

namespace gradus::course {

TEST(Sentence, SaysTheFactAndTheWords) {
  const struct {
    const char *message, *said;
  } rows[] = {
      {"a.cpp:1\nValue of: r.ok\n  Actual: false\nExpected: true\nlinear: element 3: expected <1>, got 2",
       "linear: element 3: expected <1>, got 2"},
      {"a.cpp:1\nValue of: r.ok\n  Actual: false\nExpected: true", "r.ok is false, expected true"},
      {"a.cpp:1\nExpected equality of these values:\n  y[0]\n    Which is: 4\n  kSix\n    Which is: 6\nthe "
       "sum",
       "y[0] is 4, expected kSix = 6 (the sum)"},
      {"a.cpp:1\nExpected equality of these values:\n  y\n    Which is: 4\n  6", "y is 4, expected 6"},
      {"a.cpp:1\nThe difference between y and z is 2, which exceeds e, where\ny evaluates to 1,\nz evaluates "
       "to 3, and\ne.",
       "y is 1, expected z = 3"},
      {"a.cpp:1\nExpected: (y) <= (z), actual: 3 vs 1\nof the sum",
       "Expected: (y) <= (z), actual: 3 vs 1 (of the sum)"},
      {"a.cpp:1\nExpected: (a.find(b)) != (npos), actual: 18446744073709551615 vs 18446744073709551615",
       "Expected: (a.find(b)) != (npos), but it is not found"},
      {"unknown file\nC++ exception with description \"no such\nfile\" thrown in the test body.",
       "no such file"},
      {"unknown file\nC++ exception with description \"exercise 08.2 is open: do it (see)\" thrown in the "
       "test body.",
       "exercise 08.2 is open: do it (see)"},
      {"a.cpp:1\nExpected equality of these values:\n  code\n    Which is: 1\n  0\nit said: exercise 01.10 "
       "is open: do it\nmore",
       "exercise 01.10 is open: do it"},
      {"a.cpp:1\nExpected equality of these values:\n  y\n    Which is: 4\n  6\n\nusual mistake: twice the "
       "sum\nof x",
       "usual mistake: twice the sum (y is 4, expected 6 (of x))"},
      {"only this", ""},
  };
  for (const auto& row : rows) EXPECT_EQ(sentence(row.message), row.said) << row.message;
  EXPECT_LT(sentence("a.cpp:1\n" + std::string(9999, 'x')).size(), 300u);
}

TEST(Results, AreOfTestsThatRanToTheirEnd) {
  const auto results = results_in(R"({"testsuites": [
    {"name": "Devices/L03_Golden", "testsuite": [
      {"name": "Losses/cpu", "status": "RUN", "result": "COMPLETED"},
      {"name": "Losses/emu", "status": "RUN", "result": "COMPLETED", "failures": [{"failure": "a.cpp:1\nwrong"}, {"failure": "more"}]},
      {"name": "Named/cpu", "status": "RUN", "result": "COMPLETED", "failures": [{"failure": "a.cpp:1\nwrong"}, {"failure": "a.cpp:2\nz\nusual mistake: y"}]},
      {"name": "Skipped/emu", "status": "RUN", "result": "SKIPPED"}]},
    {"name": "L03_Types/0", "testsuite": [{"name": "Sizes", "status": "RUN", "result": "COMPLETED"},
      {"name": "Other", "status": "NOTRUN", "result": "SUPPRESSED"}]}]})");
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].name, "L03_Golden.Losses");
  EXPECT_EQ(results[0].turn + results[0].failure, "cpu: ");
  EXPECT_EQ(results[1].turn + results[1].failure, "emu: wrong");
  EXPECT_EQ(results[2].failure, "usual mistake: y (z)");
  EXPECT_EQ(results[1].full_name, "Devices/L03_Golden.Losses/emu");
  EXPECT_EQ(results[3].name, "L03_Types.Sizes");
  for (const std::string text : {"", "{", "[]", "7", "{\"testsuites\": []}"})
    EXPECT_TRUE(results_in(text).empty()) << text;
}

}  // namespace gradus::course
