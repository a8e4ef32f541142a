// Grades a student's submission. The test program of each exercise is linked from the student's file and the
// solved rest, so no exercise fails because of another, and runs in its own processes with limits. An
// exercise has passed if GoogleTest's report (grade_main.cpp) says that the same tests passed as with the
// solution.
//   If the grader runs as root, the student's code runs as a user without privileges; else "isolated" is
// false in the report.

#include <algorithm>
#include <iostream>
#include <map>

#include "tests/course/commands.h"
#include "tests/course/grade_reports.h"
#include "tests/course/graded_build.h"
#include "tests/course/report.h"
#include "tests/course/tree.h"

namespace gradus::course {

namespace {

// The text as one line of at most `most` printable characters.
std::string printable(std::string text, size_t most) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  std::erase_if(text, [](char c) { return c < ' ' || c > '~'; });
  return trimmed(text).substr(0, most);
}

class Grader {
 public:
  Grader(const std::string& lesson, const fs::path& submission, const std::string& student)
      : nn_(lesson), student_(student), build_(lesson, submission, cell_) {
    for (const Exercise& e : exercises_on(page_of(nn_)))
      if (e.points > 0)
        rows_.push_back({e, "", 0, "", 0});
      else
        by_a_person_.push_back(e);
    if (rows_.empty()) refuse(page_of(nn_), " has no exercise with points");
  }

  Report grade() {
    try {
      const bool predicts =
          std::any_of(rows_.begin(), rows_.end(), [](const Row& r) { return r.exercise.judge == "predict"; });
      build_.prepare(predicts ? Lines{"build/course/predict_" + nn_} : Lines{});
      build_.compile();
      for (Row& row : rows_) {
        if (row.exercise.judge == "predict")
          predict(row);
        else
          fill_in(row);
        row.message = printable(row.message, 300);
      }
    } catch (const GraderError& e) {
      for (Row& row : rows_)
        if (row.state.empty()) row.state = "grader_error", row.message = printable(e.what(), 300);
    }
    return {nn_, student_, cell_.isolated(), rows_, by_a_person_};
  }

 private:
  static Names passed_in(const std::string& report) {
    Names names;
    for (const TestResult& r : results_in(report))
      if (r.failure.empty()) names.insert(r.full_name);
    return names;
  }
  static std::string failure_in(const std::string& report) {
    for (const TestResult& r : results_in(report))
      if (!r.failure.empty()) return r.failure;
    return "";
  }

  static Problem judged(const std::string& id, const Ended& ended, const Names& expected, double solved) {
    const std::string open = "exercise " + id + " is open", failure = failure_in(ended.report);
    std::string said;  // the last line of the output
    for (const std::string& line : lines_of(ended.output))
      if (!line.empty() && !line.starts_with("[") && !line.starts_with("Note:")) said = line.substr(0, 120);
    const Names passed = passed_in(ended.report);
    if (ended.late)
      return {"timeout",
              say("stopped after ", int(ended.seconds), " s; the solution takes ", int(solved), " s")};
    if (passed == expected && ended.code == 0) return {"passed", ""};
    if (!failure.empty())
      return {has(failure, open) ? "open" : has(failure, "std::bad_alloc") ? "memory" : "failed", failure};
    if (has("\n" + ended.output, "\n" + open)) return {"open", open_sentence(ended.output)};
    if (!ended.report.empty() && ended.code == 0)
      return {"failed",
              say(passed.size(), " of its ", expected.size(), " tests passed, the others did not run")};
    const std::string how = ended.code > 128 ? say("signal ", ended.code - 128) : say("exit ", ended.code);
    return {
        has(said, "std::bad_alloc") ? "memory" : "crashed",
        say("ended before all its tests had run (", how, ")", said.empty() ? "" : "; last output: " + said)};
  }

  void fill_in(Row& row) {
    const std::string id = row.exercise.id;
    row.state = build_.problem_of(id).state, row.message = build_.problem_of(id).message;
    if (!row.state.empty()) return;
    std::map<std::string, std::vector<Recorded>> programs;
    for (const Recorded& r : tests_of(id, build_.tests())) programs[r.program].push_back(r);
    if (programs.empty()) throw GraderError("no test records exercise " + id);
    Problem first{"passed", ""};  // of the programs, or that all have passed
    Names failed;
    for (const auto& [program, tests] : programs) {
      const std::string filter = " --gtest_filter=" + shell_word(filter_of(tests));
      const fs::path solution = cell_ / ("bin/" + replaced(program, "/", "_")),
                     submitted = cell_ / "bin/student";
      if (const std::string error = fs::exists(solution) ? "" : build_.link(program, solution, "");
          !error.empty())
        throw GraderError(program + " cannot be linked: " + error);
      const Ended solved = cell_.limited(600, solution.string() + filter);
      const Names expected = passed_in(solved.report);
      if (!solved.good() || expected.empty())
        throw GraderError(say("exercise ", id, " does not pass with the solution: exit ", solved.code, " ",
                              failure_in(solved.report)));
      if (const std::string error = build_.link(program, submitted, id); !error.empty()) {
        row.state = "not_built", row.message = error;
        return;
      }
      const Ended ended = cell_.limited(10 * int(solved.seconds) + 10, submitted.string() + filter);
      row.seconds += ended.seconds;
      const Problem verdict = judged(id, ended, expected, solved.seconds);
      if (first.state == "passed") first = verdict;
      const Names passed = passed_in(ended.report);
      for (const std::string& test : expected)
        if (!passed.contains(test)) failed.insert(plain_name(test));
      if (first.state != "passed" && row.exercise.parts.empty()) break;  // its points are lost
    }
    row.state = first.state, row.message = first.message;
    for (const Exercise::Part& part : row.exercise.parts)
      if (row.state == "failed" &&
          std::none_of(failed.begin(), failed.end(), [&](const std::string& test) { return part.has(test); }))
        row.points += part.points;
    if (row.state == "passed") row.points = row.exercise.points;
  }

  // The program predict_NN judges the answers. It prints "02.4: failed: 2 of 4 right, 1 wrong, 1 open". Each
  // right answer has the same share of the points, which are rounded down.
  void predict(Row& row) {
    const fs::path answers = cell_ / "answers/answers.txt";
    if (const Problem problem = build_.take(folder_of(nn_) + "/answers.txt", answers);
        !problem.state.empty()) {
      row.state = problem.state, row.message = problem.message;
      return;
    }
    if (student_.empty()) student_ = printable(replaced(after(read(answers), "student: "), "\"", ""), 80);
    const Ended ended = cell_.limited(600, say(cell_ / ("bin/predict_" + nn_), " --answers=", answers,
                                               " --json=/dev/null --student=", shell_word(student_)));
    const std::string said = after("\n" + ended.output, "\n" + row.exercise.id + ": ");
    row.seconds = ended.seconds;
    row.state = after(said, "", ":");
    row.message = after(said, ": ");
    const int right = std::atoi(row.message.c_str()), all = std::atoi(after(row.message, " of ").c_str());
    row.points = all > 0 ? row.exercise.points * right / all : 0;
    if (row.state == "passed" || row.state == "failed" || row.state == "open") return;
    const Lines lines = lines_of(ended.output);
    row.state = "failed", row.message = lines.empty() ? "" : lines.back();
  }

  std::string nn_, student_;
  std::vector<Row> rows_;
  std::vector<Exercise> by_a_person_;
  Cell cell_;
  GradedBuild build_;
};

}  // namespace

int grade(const std::string& lesson, const std::string& submission, std::string out,
          const std::string& student) {
  if (lesson.empty()) refuse("LESSON is missing; write LESSON=NN");
  folder_of(lesson);
  if (submission.empty()) refuse("SUBMISSION is missing, the folder with the student's files");
  if (!fs::is_directory(submission)) refuse("there is no folder ", submission);
  if (out.empty()) out = "build/grade/grade.json";
  const std::string name = replaced(replaced(printable(student, 80), "\"", ""), "\\", "");
  const Report report = Grader(lesson, fs::absolute(submission), name).grade();
  write_reports(report, out);
  std::cout << table_of(report);
  return report.grader_failed() ? 2 : 0;
}

}  // namespace gradus::course
