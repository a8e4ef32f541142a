#include "tests/course/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <map>
#include <regex>

#include "tests/course/commands.h"
#include "tests/course/tree.h"

namespace gradus::course {

// ---- build/progress.tsv -------------------------------------------------------------------------------
static const std::string kProgress = "build/progress.tsv";

std::string hash_of_sources(const std::string& nn, bool answers) {
  Lines all = files({"kernels", "src", "lessons/published", folder_of(nn)}, kCode);
  for (const std::string& file : files({"tests"}, {".h", ".cpp"})) {
    const bool of_course = file.starts_with("tests/course/");
    const bool shared = file.ends_with(".h") && fs::path(file).parent_path() == "tests";
    if (of_course ? answers : shared || has(read(file), "(L" + nn + "_")) all.push_back(file);
  }
  if (answers) all.push_back(folder_of(nn) + "/answers.txt");
  size_t h = 0;
  for (const std::string& file : all) h = h * 65599 + std::hash<std::string>()(file + "\n" + read(file));
  return say(h);
}
void record(const std::string& id, const std::string& state, const std::string& hash, std::string detail) {
  for (char& c : detail)
    if (c == '\t' || c == '\n') c = ' ';
  run(say("mkdir -p build && printf '%s\\n' ", shell_word(say(id, "\t", state, "\t", hash, "\t", detail)),
          " >>", kProgress));
}

struct Kept {
  std::string state, hash, detail;
};
static std::map<std::string, Kept> kept() {
  std::map<std::string, Kept> all;
  for (const std::string& line : lines_of(read(kProgress))) {
    std::istringstream in(line);
    std::string id;
    Kept k;
    std::getline(in, id, '\t') && std::getline(in, k.state, '\t') && std::getline(in, k.hash, '\t') &&
        std::getline(in, k.detail);
    all[id] = k;
  }
  return all;
}

// ---- make progress ------------------------------------------------------------------------------------
namespace {

struct Look {
  const char *name, *symbol, *colour;
};
constexpr Look kLooks[] = {{"passed", "✓", "32"},
                           {"failed", "✗", "31"},
                           {"open", "○", "0"},
                           {"stale", "~", "33"},
                           {"not tried", "·", "2"}};

std::string painted(const Look& look, const std::string& text) {
  return say("\033[", look.colour, "m", look.symbol, " ", text, "\033[0m  ");
}

// The state of an exercise, 16 columns wide.
std::string cell(const std::string& id, const std::string& state, bool colour) {
  const Look& look = *std::find_if(kLooks, std::end(kLooks), [&](const Look& l) { return l.name == state; });
  if (colour) return painted(look, id) + std::string(8, ' ');
  return say(std::left, std::setw(16), id + " " + state);
}

}  // namespace

int progress() {
  const bool colour = isatty(1) && !std::getenv("NO_COLOR");
  const auto results = kept();
  // The exercises of each lesson; those without points only if they have a result.
  std::map<std::string, std::vector<Exercise>> shown;
  size_t widest = 0;
  for (const Exercise& e : exercises()) {
    std::vector<Exercise>& row = shown[lesson_of(e.id)];
    if (e.points > 0 || results.contains(e.id)) row.push_back(e);
    widest = std::max(widest, row.size());
  }
  int got = 0, all = 0;
  bool stale = false;
  std::string failures;
  for (const std::string& name : lessons()) {
    const std::vector<Exercise>& row = shown[lesson_of(name)];
    std::string line = say(std::left, std::setw(22), name);
    int mine = 0, most = 0;
    for (const Exercise& e : row) {
      const auto result = results.find(e.id);
      std::string state = result == results.end() ? "not tried" : result->second.state;
      if (state != "not tried" &&
          result->second.hash != hash_of_sources(lesson_of(e.id), e.judge == "predict"))
        state = "stale", stale = true;
      if (state == "failed") failures += e.id + " fails: " + result->second.detail + "\n";
      if (state == "passed") mine += e.points;
      most += e.points;
      line += cell(e.id, state, colour);
    }
    std::cout << line << std::string(16 * (widest - row.size()), ' ') << say(std::right, std::setw(3), mine)
              << " of " << most << " points\n";
    got += mine, all += most;
  }
  for (const Look& look : kLooks)
    if (colour) std::cout << painted(look, look.name);
  std::cout << (colour ? "\n" : "") << failures << got << " of " << all << " points"
            << (stale ? "; stale: the sources changed later; make test-NN, or predict-NN, judges again" : "")
            << "\n";
  return 0;
}

// ---- make predict-NN, make faster-NN ------------------------------------------------------------------
int predict(const std::string& nn, const std::string& program, std::string student) {
  const std::string answers = folder_of(nn) + "/answers.txt";
  if (student.empty() && !fs::exists(answers)) student = trimmed(run("git config user.email").output);
  const Ran ran =
      run(say(program, " --answers=", answers, student.empty() ? "" : " --student=" + shell_word(student)));
  std::cout << ran.output;
  static const std::regex form("([0-9][0-9]\\.[0-9]+): (passed|failed|open): ([0-9]+ of .*)");
  std::smatch part;
  for (const std::string& line : lines_of(ran.output))
    if (std::regex_match(line, part, form)) record(part[1], part[2], hash_of_sources(nn, true), part[3]);
  return ran.code;
}

// An exercise has passed if its kernel is right and not slower than the given one.
int faster(const std::string& command) {
  const Ran ran = run(command);
  std::cout << ran.output;
  static const std::regex form("faster ([0-9.]*): ((wrong:|right;|open:) ([0-9.]*).*)");
  std::smatch part;
  for (const std::string& line : lines_of(ran.output)) {
    if (!std::regex_match(line, part, form)) continue;
    const bool not_slower = part[3] == "right;" && std::atof(part.str(4).c_str()) >= 1;
    record(part[1],
           part[3] == "wrong:" ? "failed"
           : not_slower        ? "passed"
                               : "open",
           hash_of_sources(lesson_of(part[1])), part[2]);
  }
  return ran.code;
}

}  // namespace gradus::course
