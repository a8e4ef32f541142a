// GoogleTest's JSON report, and what a failure in it says to a student.
#pragma once
#include <string>
#include <vector>

namespace gradus::course {

struct TestResult {
  std::string full_name;  // Devices/L03_Golden.Losses/cpu
  std::string name;       // L03_Golden.Losses
  std::string turn;       // "cpu: ", or nothing
  std::string failure;    // of the first that failed, in one sentence; "" if it passed
};
// Of the tests that ran to their end; nothing, if the text is no report.
std::vector<TestResult> results_in(const std::string& json);

std::string plain_name(const std::string& full_name);
// "exercise 08.2 is open: …", wherever it stands in what was said, up to the end of its line; "" if nowhere.
std::string open_sentence(const std::string& said);
// What a message of GoogleTest says: the fact (what was got, what was expected) and the words that the test
// adds; the words alone if they have both. A usual mistake (tests/mistakes.h) comes first.
std::string sentence(const std::string& message);

}  // namespace gradus::course
