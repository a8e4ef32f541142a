#include "tests/course/grade_reports.h"

#include <iomanip>
#include <nlohmann/json.hpp>

namespace gradus::course {

using Json = nlohmann::ordered_json;

static const std::string kNoBlame =
    "The grader failed; this says nothing about your work. Please tell your teacher.";

bool Report::grader_failed() const {
  for (const Row& r : rows)
    if (r.state == "grader_error") return true;
  return false;
}
int Report::total() const {
  int sum = 0;
  for (const Row& r : rows) sum += r.points;
  return sum;
}
int Report::most() const {
  int sum = 0;
  for (const Row& r : rows) sum += r.exercise.points;
  return sum;
}

static Lines ids_of(const std::vector<Exercise>& exercises) {
  Lines ids;
  for (const Exercise& e : exercises) ids.push_back(e.id);
  return ids;
}

static Json json_of(const Report& report) {
  Json list = Json::array();
  for (const Row& r : report.rows) {
    const Json points = r.state == "grader_error" ? Json() : Json(r.points);
    list.push_back({{"id", r.exercise.id},
                    {"kind", r.exercise.kind},
                    {"points", points},
                    {"max_points", r.exercise.points},
                    {"state", r.state},
                    {"seconds", std::round(100 * r.seconds) / 100},
                    {"message", r.message}});
  }
  return {{"lesson", report.lesson},
          {"student", report.student},
          {"isolated", report.isolated},
          {"exercises", list},
          {"by_a_person", ids_of(report.by_a_person)},
          {"total", report.grader_failed() ? Json() : Json(report.total())},
          {"max", report.most()}};
}

// If there is no score, Gradescope shows that the grader failed.
static Json gradescope_of(const Report& report) {
  if (report.grader_failed()) return {{"output", kNoBlame}};
  Json tests = Json::array();
  for (const Row& r : report.rows)
    tests.push_back({{"name", r.exercise.id + " " + r.exercise.kind},
                     {"score", r.points},
                     {"max_score", r.exercise.points},
                     {"status", r.state == "passed" ? "passed" : "failed"},
                     {"output", r.state + (r.message.empty() ? "" : ": ") + r.message}});
  return {{"score", report.total()}, {"tests", tests}};
}

static std::string junit_of(const Report& report) {
  const auto escaped = [](const std::string& text) {
    return replaced(replaced(replaced(replaced(text, "&", "&amp;"), "<", "&lt;"), ">", "&gt;"), "\"",
                    "&quot;");
  };
  int errors = 0, failures = 0;
  std::string cases;
  for (const Row& r : report.rows) {
    const bool error = r.state == "grader_error", good = r.state == "passed";
    errors += error, failures += !error && !good;
    cases += say("  <testcase classname=\"lesson ", report.lesson, "\" name=\"", r.exercise.id, " ",
                 r.exercise.kind, "\" time=\"", r.seconds, "\"");
    cases += good ? "/>\n"
                  : say("><", error ? "error" : "failure", " type=\"", r.state, "\" message=\"",
                        escaped(r.message), "\"/></testcase>\n");
  }
  return say("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"lesson ", report.lesson,
             "\" tests=\"", report.rows.size(), "\" failures=\"", failures, "\" errors=\"", errors, "\">\n",
             cases, "</testsuite>\n");
}

static std::string autolab_of(const Report& report) {
  if (report.grader_failed()) return "the grader failed; this says nothing about your work\n";
  Json scores = Json::object();
  for (const Row& r : report.rows) scores[r.exercise.id] = r.points;
  return Json{{"scores", scores}}.dump() + "\n";
}

std::string table_of(const Report& report) {
  std::ostringstream text;
  for (const Row& r : report.rows)
    text << r.exercise.id << "  " << std::left << std::setw(18) << r.exercise.kind << std::right
         << std::setw(5) << (r.state == "grader_error" ? "?" : say(r.points)) << " of " << std::setw(2)
         << r.exercise.points << "  " << std::left << std::setw(12) << r.state << " " << r.message << "\n";
  if (!report.isolated)
    text << "not isolated: the code ran with your rights; call the grader as root to prevent this\n";
  if (report.grader_failed())
    text << "no total: the grader failed; no student should lose points because of it\n";
  else
    text << "lesson " << report.lesson << ": " << report.total() << " of " << report.most() << " points\n";
  if (report.by_a_person.empty()) return text.str();
  Lines left;
  for (const Exercise& e : report.by_a_person) left.push_back(e.id + " " + e.kind);
  text << "for a person to grade, with the answers and points of tests/course/teacher/" << report.lesson
       << ".md: " << joined(left, ", ") << "\n";
  return text.str();
}

void write_reports(const Report& report, const fs::path& out) {
  const auto put = [](const fs::path& file, const std::string& text) {
    const fs::path part = file.string() + ".part";
    write(part, text);
    fs::rename(part, file);
  };
  put(out, json_of(report).dump(1) + "\n");
  put(fs::path(out).replace_filename("results.json"), gradescope_of(report).dump(1) + "\n");
  put(fs::path(out).replace_filename("junit.xml"), junit_of(report));
  put(fs::path(out).replace_filename("autolab.txt"), autolab_of(report));
}

}  // namespace gradus::course
