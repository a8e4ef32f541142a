// What make test-NN and make hint-NN.k print.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <regex>

#include "tests/course/commands.h"
#include "tests/course/progress.h"
#include "tests/course/report.h"
#include "tests/course/tree.h"
#include "tests/mistakes.h"

namespace gradus::course {

// ---- make test-NN -------------------------------------------------------------------------------------
namespace {

// The places of a lesson's exercises in this tree, and whether they are open.
struct Spot {
  std::string place;
  bool open = false;
};
std::map<std::string, Spot> spots_of(const std::string& nn) {
  static const std::regex form(".*(BEGIN SOLUTION |EXERCISE |todo\\(\")([0-9]+\\.[0-9]+).*");
  std::map<std::string, Spot> spots;
  for (const std::string& file : sources()) {
    const std::string text = read(file);
    if (!has(text, nn + ".")) continue;
    int number = 0;
    for (const std::string& line : lines_of(text)) {
      ++number;
      std::smatch part;
      if (!has(line, nn + ".") || !std::regex_match(line, part, form) || lesson_of(part[2]) != nn) continue;
      Spot& spot = spots[part[2]];
      if (spot.place.empty()) spot.place = say(file, ":", number);
      if (has(part.str(1), "todo") && !has(line, "STUB:")) spot.open = true;
    }
  }
  return spots;
}

using TestsById = std::map<std::string, std::vector<Recorded>>;  // of one lesson; the keys are exercises

// The exercise that a message reports as open; "" if none.
std::string open_in(const std::string& words) {
  const std::string sentence = open_sentence(words);
  return after(sentence, "exercise ", " ");
}

// The message of the highest rank is shown: one with an open exercise, a usual mistake, or an element.
int rank(const std::string& words) {
  return !open_in(words).empty() ? 3 : has(words, kUsualMistake) ? 2 : has(words, "element");
}

// The failures of a run's tests, by their names; "" for a test that passed.
using Results = std::map<std::string, std::string>;

Results run_tests(const std::string& program, const std::string& filter, const std::string& instead) {
  const std::string report = program + ".json";
  fs::remove(report);
  const Ran ran = run(say(program, " --gtest_filter=", shell_word(filter), " --gtest_output=json:", report));
  write(program + ".log", ran.output);
  Results results;
  for (const TestResult& r : results_in(read(report))) {
    std::string& said = results[r.name];
    if (!r.failure.empty() && (said.empty() || rank(r.failure) > rank(said))) said = r.turn + r.failure;
  }
  if (!results.empty() || (ran.good() && fs::exists(report))) return results;
  // The program ended before it wrote the report.
  const size_t last = ran.output.rfind("[ RUN      ] ");
  const std::string during = last == std::string::npos ? "" : after(ran.output.substr(last), "] ");
  const std::string how =
      ran.code == 139   ? "by an access outside its memory (a null pointer, or an index far out of range)"
      : ran.code == 134 ? "by abort()"
                        : say("with exit code ", ran.code);
  const std::string open = open_sentence(ran.output),
                    name = plain_name(during.empty() ? fs::path(program).filename().string() : during);
  results[instead.empty() ? name : instead] =
      !open.empty() ? open
                    : say("the program ended early", during.empty() ? "" : ", in " + during, ", ", how);
  return results;
}

// The state of one exercise, and what is printed.
struct Verdict {
  std::string state, detail;
};
Verdict judge(const std::string& id, const std::vector<Recorded>& tests, const Results& results,
              const std::map<std::string, Spot>& spots) {
  std::string words;
  for (const Recorded& r : tests) {
    const auto result = results.find(r.test);
    const std::string said = result == results.end() ? "its test " + r.test + " did not run" : result->second;
    if (!said.empty() && (words.empty() || rank(said) > rank(words))) words = said;
  }
  if (words.empty()) return {"passed", ""};
  const auto spot = spots.find(id);
  const std::string where = spot == spots.end() ? "see " + page_of(lesson_of(id)) : spot->second.place;
  const std::string other = open_in(words);
  if (other.empty()) return {"failed", words + "; your lines: " + where};
  const bool mine_is_open = other == id || (spot != spots.end() && spot->second.open);
  return {"open", mine_is_open ? where : "its test needs " + other + ", which is open; your lines: " + where};
}

// Prints the results of a lesson's other tests; returns whether one fails.
int tell_others(const std::string& nn, const Results& results, const TestsById& tests) {
  int good = 0, open = 0, failing = 0;
  for (const auto& [test, said] : results) {
    if (said.empty())
      ++good;
    else if (!open_in(said).empty())
      ++open;
    else if (++failing <= 5) {
      std::cout << test;
      for (const auto& [id, list] : tests)
        for (const Recorded& r : list)
          if (r.test == test) std::cout << " (" << id << ")";
      std::cout << " FAILS: " << said << "\n";
    }
  }
  if (failing > 5) std::cout << failing - 5 << " more FAIL; the log is build/tests/" << nn << ".log\n";
  std::cout << good << " passed";
  if (failing > 0) std::cout << ", " << failing << (failing == 1 ? " FAILS" : " FAIL");
  if (open > 0) std::cout << ", " << open << " open (they wait for exercises)";
  std::cout << "\n";
  return failing > 0;
}

// The exercises to judge: of a lesson those that its tests judge; a bug that students find only when it is
// asked for.
Lines to_judge(const std::string& what, const TestsById& tests) {
  const std::string nn = lesson_of(what);
  Lines ids;
  for (const Exercise& e : exercises_on(page_of(nn))) {
    if (what == nn && e.judge == "tests") ids.push_back(e.id);
    if (e.id != what) continue;
    if (tests.contains(what)) return {what};
    if (e.judge == "predict" || e.judge == "faster")
      refuse("exercise ", what, " is judged by make ", e.judge, "-", nn);
  }
  if (what == nn) return ids;
  for (const auto& [id, list] : tests) ids.push_back(id);
  refuse("no test judges an exercise ", what, "; the tests of lesson ", nn, " judge ", joined(ids));
}

bool build(const Lines& programs) {
  return std::system(("make counted GOALS='" + joined(programs) + "'").c_str()) == 0;
}

// Prints and records the state of each exercise; returns whether none fails. `hash`: of the built sources.
bool judge_exercises(const std::string& nn, const Lines& ids, TestsById& tests, const std::string& hash) {
  const auto spots = spots_of(nn);
  std::map<std::string, Lines> in;  // a state
  for (const std::string& id : ids) {
    const std::vector<Recorded>& mine = tests[id];
    const Results results =
        run_tests("build/tests/" + id, filter_of(mine), mine.empty() ? id : mine.front().test);
    const Verdict v = judge(id, mine, results, spots);
    if (v.state == "open") std::cout << id << " is open: " << v.detail << std::endl;
    if (v.state == "failed") std::cout << id << " FAILS: " << v.detail << std::endl;
    record(id, v.state, hash, v.detail);
    in[v.state].push_back(id);
  }
  const auto list = [&](const char* state) {
    return in[state].empty() ? "" : " (" + joined(in[state], ", ") + ")";
  };
  const size_t failing = in["failed"].size(), open = in["open"].size();
  std::cout << "lesson " << nn << ": " << in["passed"].size() << " of " << ids.size()
            << (ids.size() == 1 ? " exercise" : " exercises") << " passed" << list("passed");
  if (failing > 0) std::cout << ", " << failing << (failing == 1 ? " FAILS" : " FAIL") << list("failed");
  if (open > 0) std::cout << ", " << open << " open" << list("open");
  std::cout << std::endl;
  return failing == 0;
}

}  // namespace

int test(const std::string& what) {
  const std::string nn = lesson_of(what);
  TestsById tests;
  for (const Recorded& r : recorded())
    if (lesson_of(r.id) == nn) tests[r.id].push_back(r);
  const Lines ids = to_judge(what, tests);
  Lines programs;
  std::vector<Recorded> judged;
  for (const std::string& id : ids) {
    std::cout << id << " is judged by";
    for (const Recorded& r : tests[id]) std::cout << " " << r.test, judged.push_back(r);
    std::cout << std::endl;
    programs.push_back("build/tests/" + id);
  }
  const std::string hash = hash_of_sources(nn);
  if (!build(programs)) return 1;
  bool good = judge_exercises(nn, ids, tests, hash);
  if (what == nn) {
    std::cout << "the other tests of lesson " << nn << ":" << std::endl;
    if (!build({"build/tests/" + nn})) return 1;
    const std::string filter = "*L" + nn + "_*" + (judged.empty() ? "" : "-" + filter_of(judged));
    good = tell_others(nn, run_tests("build/tests/" + nn, filter, ""), tests) == 0 && good;
  }
  return good ? 0 : 1;
}

// ---- make hint-NN.k -----------------------------------------------------------------------------------
int hint(const std::string& id) {
  const std::string seen = "build/hints";
  Lines ids, of_lesson;
  for (const Exercise& e : exercises()) {
    ids.push_back(e.id);
    if (e.id.substr(0, 3) == after(id, "", ".") + ".") of_lesson.push_back(e.id);
  }
  if (!std::count(ids.begin(), ids.end(), id)) {
    if (!of_lesson.empty())
      refuse("lesson ", lesson_of(id), " has no exercise ", id, "; it has ", joined(of_lesson));
    refuse("there is no exercise ", id, "; write make hint-NN.k with one of ", joined(ids));
  }
  const Lines hints = hints_for(id, read(folder_of(lesson_of(id)) + "/hints.md"));
  if (hints.empty()) refuse("there are no hints for exercise ", id, "; its page is ", page_of(lesson_of(id)));
  const Lines before = lines_of(read(seen));
  const auto next = size_t(std::count(before.begin(), before.end(), id));
  const auto show = [&](size_t k) {
    std::cout << run(say("printf '%s\\n' ",
                         shell_word(say("hint ", k + 1, " of 3 for ", id, ": ", hints.at(k))),
                         " | fold -s -w 110 | sed 's/ *$//'"))
                     .output;
  };
  if (next < hints.size()) {
    write(seen, text_of(before) + id + "\n");
    show(next);
    if (next == 2)
      std::cout << "that was the last one\n";
    else
      std::cout << 2 - next << " more: make hint-" << id << "\n";
  } else {
    std::cout << "there are no more hints for " << id << "; all three again:\n";
    for (size_t k = 0; k < hints.size(); ++k) show(k);
  }
  return 0;
}

}  // namespace gradus::course
