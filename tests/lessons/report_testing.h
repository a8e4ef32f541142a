// Which checks of a lesson fail, if its own function is given what it would have measured.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "src/train/report.h"

namespace gradus {

using Names = std::vector<std::string>;

// The names of the checks that `add` puts into a report on the device cpu and that fail there.
inline Names failed_checks(const std::function<void(Report&)>& add) {
  struct Output {  // what is printed meanwhile
    std::ostringstream text;
    std::streambuf* const before = std::cout.rdbuf(text.rdbuf());
    ~Output() { std::cout.rdbuf(before); }
  } output;
  Device cpu("cpu");
  Report report("test", cpu);
  add(report);
  const int code = report.finish("");
  Names failed;
  std::istringstream lines(output.text.str());
  for (std::string line; std::getline(lines, line);)
    if (line.ends_with(" FAILED")) {
      const size_t name = line.find_first_not_of(' ');
      failed.push_back(line.substr(name, line.find("  ", name) - name));
    }
  EXPECT_EQ(code, failed.empty() ? 0 : 1);
  return failed;
}

}  // namespace gradus
