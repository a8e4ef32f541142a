#include "tests/course/report.h"

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/course/text.h"
#include "tests/mistakes.h"

namespace gradus::course {

std::string plain_name(const std::string& full_name) {
  static const std::regex form("(.*/)?([A-Za-z_]\\w*)(/[0-9]+)?\\.(\\w+)(/.*)?");
  std::smatch part;
  return std::regex_match(full_name, part, form) ? part.str(2) + "." + part.str(4) : full_name;
}

// The first failure, or the first that names a usual mistake.
static std::string failure_of(const nlohmann::json& test) {
  std::string first;
  for (const nlohmann::json& failure : test.value("failures", nlohmann::json::array())) {
    const std::string said = sentence(failure.value("failure", "?"));
    if (has(said, kUsualMistake)) return said;
    if (first.empty()) first = said;
  }
  return first;
}

std::vector<TestResult> results_in(const std::string& text) {
  using nlohmann::json;
  const json report = json::parse(text, nullptr, false);
  std::vector<TestResult> results;
  if (report.is_discarded() || !report.is_object()) return results;
  for (const json& suite : report.value("testsuites", json::array()))
    for (const json& test : suite.value("testsuite", json::array())) {
      if (test.value("status", "") != "RUN" || test.value("result", "") != "COMPLETED") continue;
      const std::string name = test.value("name", ""), full = suite.value("name", "") + "." + name;
      const std::string turn = has(name, "/") ? after(name, "/", "\n") + ": " : "";
      results.push_back({full, plain_name(full), turn, failure_of(test)});
    }
  return results;
}

std::string open_sentence(const std::string& said) {
  static const std::regex form("exercise [0-9]+\\.[0-9]+ is open[^\\n]*");
  std::smatch part;
  return std::regex_search(said, part, form) ? part.str().substr(0, part.str().find("\" thrown in ")) : "";
}

static std::string shortened(const std::string& text, size_t most) {
  return text.size() > most ? text.substr(0, most) + " …" : text;
}
static std::string without_end(const std::string& text, const std::string& end) {
  return text.ends_with(end) ? text.substr(0, text.size() - end.size()) : text;
}

std::string sentence(const std::string& message) {
  if (const std::string open = open_sentence(message); !open.empty()) return open;
  if (const size_t named = message.find(kUsualMistake); named != message.npos) {
    const std::string what = after(message.substr(named), "", "\n");
    return what + " (" + sentence(replaced(message, what, "")) + ")";
  }
  Lines line = lines_of(message);
  line.resize(std::max<size_t>(line.size(), 7));  // the first line says where
  const std::string thrown = "C++ exception with description \"", which = "    Which is: ";
  std::string fact = line[1];
  size_t at = 2;
  if (fact.starts_with(thrown)) {
    fact = replaced(message.substr(message.find(thrown) + thrown.size()), "\n", " ");
    fact = fact.substr(0, fact.find("\" thrown in "));
    at = line.size();
  } else if (fact.starts_with("Value of: ")) {
    fact = fact.substr(10) + " is " + after(line[2], ": ") + ", expected " + after(line[3], ": ");
    at = 4;
  } else if (fact.starts_with("Expected equality of these values:")) {
    fact = trimmed(line[at++]);
    if (line[at].starts_with(which)) fact += " is " + line[at++].substr(which.size());
    fact += ", expected " + trimmed(line[at++]);
    if (line[at].starts_with(which)) fact += " = " + line[at++].substr(which.size());
  } else if (fact.starts_with("The difference between ") && fact.ends_with(", where")) {
    fact = replaced(without_end(line[2], ","), " evaluates to ", " is ") + ", expected " +
           replaced(without_end(line[3], ", and"), " evaluates to ", " = ");
    at = 5;
  } else {  // find() != npos
    fact = replaced(fact, ", actual: 18446744073709551615 vs 18446744073709551615", ", but it is not found");
  }
  std::string words;
  for (; at < line.size(); ++at)
    if (!trimmed(line[at]).empty()) words += (words.empty() ? "" : " ") + trimmed(line[at]);
  if (has(words, "expected") && has(words, "got")) return shortened(words, 400);
  return shortened(fact, 250) + (words.empty() ? "" : " (" + shortened(words, 250) + ")");
}

}  // namespace gradus::course
