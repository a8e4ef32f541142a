// course: the tools for teaching a course with gradus. make calls it (course.mk) from the root of the tree.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>

#include "tests/course/commands.h"

namespace gradus::course {

// `at(k)`: the k-th word after the command, "" if there are fewer.
struct Call {
  Lines words;
  std::string at(size_t k) const { return k < words.size() ? words[k] : ""; }
  Lines from(size_t k) const {
    return k < words.size() ? Lines(words.begin() + long(k), words.end()) : Lines{};
  }
};

static Names parts_to_check() {
  const char* parts = std::getenv("PARTS");
  std::istringstream words(parts ? parts : "built mutants");
  Names names;
  for (std::string w; words >> w;) names.insert(w);
  return names;
}

static const std::map<std::string, std::function<int(const Call&)>> kCommands{
    {"test", [](const Call& c) { return test(c.at(0)); }},
    {"hint", [](const Call& c) { return hint(c.at(0)); }},
    {"progress", [](const Call&) { return progress(); }},
    {"predict", [](const Call& c) { return predict(c.at(0), c.at(1), c.at(2)); }},
    {"faster", [](const Call& c) { return faster(joined(c.words)); }},
    {"bug", [](const Call& c) { return bug(c.at(0), c.at(1) == "undo", c.at(2)); }},
    {"student", [](const Call& c) { return student(c.at(0), c.at(1), c.at(2) == "github"); }},
    {"check", [](const Call& c) { return check(c.words, parts_to_check()); }},
    {"changed", [](const Call&) { return changed(); }},
    {"mutants", [](const Call& c) { return judge_mutants(c.words); }},
    {"marks", [](const Call&) { return show_marks(); }},
    {"grade", [](const Call& c) { return grade(c.at(0), c.at(1), c.at(2), c.at(3)); }},
};

int main_of(const Lines& words) {
  const auto command = kCommands.find(words.empty() ? "" : words[0]);
  try {
    if (command == kCommands.end()) refuse("make calls this program; `make help` lists the commands");
    return command->second({{words.begin() + 1, words.end()}});
  } catch (const Refusal& r) {
    std::cerr << (words.empty() ? "course" : words[0]) << ": " << r.what() << "\n";
  } catch (const fs::filesystem_error& e) {
    std::cerr << words[0] << ": " << e.what() << "\n";
  }
  return 2;
}

}  // namespace gradus::course
