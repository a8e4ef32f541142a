// The files that `course grade` writes. grade.json is
//   {"lesson": "02", "student": "...", "isolated": true,     false: it did not run as a separate user
//    "exercises": [{"id": "02.2", "kind": "fill in", "points": 10, "max_points": 10,
//                   "state": "passed", "seconds": 0.31, "message": ""}],
//    "by_a_person": ["02.1"],                              without points; the answers: tests/course/teacher
//    "total": 10, "max": 30}
// state: passed, failed (a test failed; tests with points of their own that passed count), open (not handed
// in, or still a stub), not_built, timeout, memory, crashed; and grader_error, which says nothing about the
// student: its points are null, and so is the total. The messages are for students, in printable ASCII.
#pragma once
#include "tests/course/tree.h"

namespace gradus::course {

struct Row {
  Exercise exercise;
  std::string state;
  double seconds = 0;
  std::string message;
  int points = 0;
};
struct Report {
  std::string lesson, student;
  bool isolated = false;
  std::vector<Row> rows;
  std::vector<Exercise> by_a_person;  // no machine judges them
  bool grader_failed() const;
  int total() const, most() const;
};

std::string table_of(const Report& report);  // for a terminal
// Writes grade.json to `out` and, in the same folder, results.json (Gradescope), junit.xml and autolab.txt. A
// full disk leaves no incomplete file.
void write_reports(const Report& report, const fs::path& out);

}  // namespace gradus::course
