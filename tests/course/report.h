// Reads GoogleTest's JSON report and shortens its failures for students.
#pragma once
#include <string>
#include <vector>

namespace gradus::course {

struct TestResult {
  std::string full_name;  // Devices/L03_Golden.Losses/cpu
  std::string name;       // L03_Golden.Losses
  std::string turn;       // "cpu: ", or nothing
  std::string failure;    // the first failure, or a usual mistake, in one sentence; "" if it passed
};
// The tests that ran to their end; empty if the text is not a report.
std::vector<TestResult> results_in(const std::string& json);

std::string plain_name(const std::string& full_name);
// The text "exercise 08.5 is open: …" within `said`, up to the end of its line; "" if there is none.
std::string open_sentence(const std::string& said);
// One sentence for a message of GoogleTest: the fact (actual and expected value) and the words that the test
// adds, or only the words if they have both values. A usual mistake (tests/mistakes.h) comes first.
std::string sentence(const std::string& message);

}  // namespace gradus::course
