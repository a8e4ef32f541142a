// A submission whose right grade is known, for grade_check.cpp: it is made from the solved files and graded.
#pragma once
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/course/commands.h"
#include "tests/course/tree.h"

namespace gradus::course {

class GradeTrial {
 public:
  int failures() const { return failures_; }

 protected:
  using Json = nlohmann::json;
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  template <class... Parts>
  void fail(const Parts&... parts) {
    std::cout << "check of grade: " << say(parts...) << "\n" << report_.dump(1) << std::endl;
    ++failures_;
  }
  fs::path sub() const { return base_ / "sub"; }
  void fresh() {
    fs::remove_all(sub());
    fs::create_directory(sub());
  }
  // The files as a student hands them in, with these exercises open.
  void solve(const Names& open, const Names& files) {
    for (const std::string& file : files) write(sub() / file, as_student(read(file), open));
  }
  int grade_it(const std::string& nn) {
    std::ostringstream said;
    std::streambuf* before = std::cout.rdbuf(said.rdbuf());
    const int code = main_of({"grade", nn, sub().string(), out().string()});
    std::cout.rdbuf(before);
    report_ = Json::parse(read(out()), nullptr, false);
    return code;
  }
  fs::path out() const { return base_ / "out/grade.json"; }
  Json row(const std::string& id) const {
    for (const Json& r : report_.value("exercises", Json::array()))
      if (r.value("id", "") == id) return r;
    return {};
  }
  // Writes the answers of a lesson, computed with the formulas of its page.
  void answer(const std::string& nn) {
    const std::string judge = "build/course/predict_" + nn,
                      file = (sub() / folder_of(nn) / "answers.txt").string();
    fs::create_directories(fs::path(file).parent_path());
    const Ran ran = run(say("make ", judge, " && ", judge, " --answers=", file,
                            " --student=self-test && awk -f tests/course/predict_answers.awk ", file, " >",
                            file, ".solved && mv ", file, ".solved ", file));
    if (!ran.good()) fail("lesson ", nn, ": its answers: ", ran.output);
  }

  Scratch base_;
  Json report_;

 private:
  int failures_ = 0;
};

}  // namespace gradus::course
