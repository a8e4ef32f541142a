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

// The names of the checks that `add` puts into a report on the device cpu and that fail there; a check of
// time, which never decides the exit code, is among them if its verdict is "differs".
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
  bool fails = false;
  for (std::string line; std::getline(lines, line);) {
    const size_t name = line.find_first_not_of(' ');
    if (line.ends_with(" FAILED") || line.ends_with(" differs"))
      failed.push_back(line.substr(name, line.find("  ", name) - name));
    fails = fails || line.ends_with(" FAILED");
  }
  EXPECT_EQ(code, fails ? 1 : 0);
  return failed;
}

// What a lesson has measured, and how it checks that. Where nothing is wrong no check fails.
template <class T>
class Checked {
 public:
  using Checks = std::function<void(const T&, Report&)>;
  Checked(T right, Checks checks) : right_(std::move(right)), checks_(std::move(checks)) {
    EXPECT_EQ((*this)([](T&) {}), Names{});
  }
  // The names of the checks that fail where `plant` has made something wrong.
  Names operator()(const std::function<void(T&)>& plant) const {
    T measured = right_;
    plant(measured);
    return failed_checks([&](Report& r) { checks_(measured, r); });
  }

 private:
  T right_;
  Checks checks_;
};
template <class T, class F>
Checked(T, F) -> Checked<T>;

}  // namespace gradus
