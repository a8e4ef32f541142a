#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>

#include "tests/course/commands.h"
#include "tests/course/trees.h"

namespace gradus::course {

// ---- make mutants -------------------------------------------------------------------------------------
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The test that failed, or that was running when the program ended or was stopped.
std::string failed_test(const std::string& log) {
  const std::string failed = after(log, "[  FAILED  ] ", ", (\n");
  const size_t last = log.rfind("[ RUN      ] ");
  if (!failed.empty()) return failed;
  return last == log.npos ? "its end" : after(log.substr(last), "] ");
}

// The tests of one lesson, as a program in the tree with the mutants.
class LessonTests {
 public:
  LessonTests(const TrialTree& tree, const std::string& nn) : tree_(tree), nn_(nn) {
    const std::string sources =
        run(say("grep -l '^[TYPED_]*TEST[_FP]*.L", nn, "_' $(find tests -name '*_test.cpp')")).output;
    for (const std::string& file : lines_of(sources))
      if (has(read(file), "tests/program_testing.h")) runs_programs_ = true;
    if (sources.empty())
      refuse("lesson ", nn, " has no test: give one a suite name that begins with L", nn, "_");
  }
  Ran build() const { return tree_.make("build/tests/" + nn_ + (runs_programs_ ? " run-by-tests" : "")); }
  // Runs all tests of the lesson until one fails, and returns its name. The tests of `exercise` run first,
  // then those that killed earlier mutants.
  std::string killer(const std::string& exercise, Names& killers) const {
    Lines filters;
    if (const std::string filter = filter_of(tests_of(exercise, recorded_)); !filter.empty())
      filters.push_back(filter);
    if (!killers.empty()) filters.push_back(joined(killers, ":"));
    filters.push_back("*L" + nn_ + "_*");
    for (const std::string& filter : filters) {
      const Ran ran = tests(filter, limit_);
      if (passed(ran) || (ran.good() && has(ran.output, "0 tests ran"))) continue;
      const std::string test = failed_test(ran.output);
      if (has(test, ".")) killers.insert(test);
      return test + (ran.code == 124 || ran.code == 137 ? say(", stopped after ", limit_, " s") : "");
    }
    return "";
  }
  // The output of the tests of an exercise.
  std::string said(const std::string& exercise) const {
    return tests(filter_of(tests_of(exercise, recorded_)), limit_, "").output;
  }
  // Runs the tests without a mutant, which sets the time limit. Returns how many pass.
  std::string pass() {
    const double start = seconds();
    const Ran ran = tests("*L" + nn_ + "_*", 1200);
    const char* least = std::getenv("LIMIT");
    limit_ = std::max(least ? std::atoi(least) : 20, int(5 * (seconds() - start)));
    if (!passed(ran))
      refuse("lesson ", nn_, ": ", failed_test(ran.output), " fails without any mutant; nothing is judged");
    return after(ran.output, "[  PASSED  ] ", " ");
  }

 private:
  Ran tests(const std::string& filter, int limit, const std::string& flags = "--gtest_fail_fast") const {
    return run(say("cd ", tree_.path(), " && timeout -k 2 ", limit, " build/tests/", nn_, " ", flags,
                   " --gtest_filter=", shell_word(filter)));
  }
  const TrialTree& tree_;
  std::string nn_;
  std::vector<Recorded> recorded_ = recorded();
  bool runs_programs_ = false;
  int limit_ = 0;
};

struct Count {
  int killed = 0, survive = 0, errors = 0;
  Lines survivors;
};

void judge_one(const Mutant& m, const TrialTree& tree, const LessonTests& tests, Names& killers,
               Count& count) {
  const double start = seconds();
  std::string verdict;
  std::vector<std::pair<std::string, std::string>> before;
  try {
    for (const auto& [file, text] : m.changed(tree.path())) {
      before.push_back({file, read(tree / file)});
      write(tree / file, text);
    }
    const Ran build = tests.build();
    if (!build.good()) refuse("does not compile: ", trimmed(lines_with(build.output, {"rror"}, 1)));
    const std::string exercise = m.name[2] == '.' ? after(m.name, "", "_") : "";
    const std::string killer = tests.killer(exercise, killers);
    if (!m.says.empty() && !has(tests.said(exercise), m.says))
      refuse("is not named: the tests of exercise ", exercise, " do not say: ", m.says);
    verdict = killer.empty() ? "survives" : "killed by " + killer;
    ++(killer.empty() ? count.survive : count.killed);
    if (killer.empty())
      count.survivors.push_back(m.name +
                                " survives: " + (m.survives.empty() ? "no reason is given" : m.survives));
  } catch (const Refusal& r) {
    verdict = say("error ", r.what());
    ++count.errors;
  }
  for (const auto& [file, text] : before) write(tree / file, text);
  std::cout << m.name << ": " << verdict << " (" << int(seconds() - start) << " s)" << std::endl;
}

// The mutants to judge, by lesson.
std::map<std::string, std::vector<Mutant>> asked_for(const Lines& what) {
  std::map<std::string, std::vector<Mutant>> asked;
  Lines all;
  for (const std::string& file : files({"tests/mutants"}, {".txt"}))
    all.push_back(fs::path(file).stem().string());
  if (all.empty()) refuse("there is no mutant in tests/mutants");
  for (const std::string& name : what.empty() ? all : what) {
    size_t found = 0;
    for (const Mutant& m : mutants(lesson_of(name)))
      if (name.size() == 2 || name == m.name) asked[lesson_of(name)].push_back(m), ++found;
    if (found == 0)
      refuse("there is no mutant ", name, "; write NN for all of a lesson (there are ", joined(all),
             "), or a mutant's name");
  }
  return asked;
}

}  // namespace

int judge_mutants(const Lines& what) {
  const auto asked = asked_for(what);
  const TrialTree tree("build/mutants/tree");
  tree.be_like(".");
  bool good = true;
  for (const auto& [nn, list] : asked) {
    LessonTests tests(tree, nn);
    if (const Ran build = tests.build(); !build.good())
      refuse("the tests of lesson ", nn,
             " do not build without any mutant: ", lines_with(build.output, {"rror"}, 5));
    std::cout << "lesson " << nn << ": " << tests.pass() << " tests pass without any mutant" << std::endl;
    Count count;
    Names killers;
    for (const Mutant& m : list) judge_one(m, tree, tests, killers, count);
    std::cout << "lesson " << nn << ": " << count.killed << " of " << count.killed + count.survive
              << " mutants killed\n";
    for (const std::string& line : count.survivors) std::cout << "  " << line << "\n";
    if (count.errors > 0) std::cout << "  " << count.errors << " could not be judged\n";
    const bool enough = 100 * count.killed >= 95 * (count.killed + count.survive);
    if (!enough) std::cout << "  at least 95 % must be killed\n";
    good = good && enough && count.errors == 0;
  }
  return good ? 0 : 1;
}

// ---- make bug-NN --------------------------------------------------------------------------------------
static bool applies(const std::string& patch) { return run("git apply --check " + patch).good(); }

static int take_out(const std::string& nn, const std::string& patch) {
  if (!fs::exists(patch)) refuse("no bug was put in; make bug-", nn, " puts one in");
  if (applies("-R " + patch))
    run("git apply -R " + patch);
  else if (!applies(patch))
    refuse("the lines of the bug have changed; git diff shows your changes");
  fs::remove(patch);
  std::cout << "the bug is out\n";
  return 0;
}

// The mutants that apply to this tree and that the tests detect.
static std::vector<Mutant> bugs_of(const std::string& nn) {
  std::vector<Mutant> bugs;
  for (const Mutant& m : mutants(nn)) try {
      m.changed(".");
      if (m.survives.empty()) bugs.push_back(m);
    } catch (const Refusal&) {  // its exercise is open
    }
  return bugs;
}

int bug(const std::string& nn, bool undo, const std::string& seed) {
  const std::string patch = "build/bug.patch";
  if (undo) return take_out(nn, patch);
  if (fs::exists(patch) && !applies(patch))
    refuse("a bug is in already; make bug-", nn, " UNDO=1 takes it out");
  const std::vector<Mutant> bugs = bugs_of(nn);
  if (bugs.empty()) {
    Names with_bugs;
    for (const std::string& file : files({"tests/mutants"}, {".txt"}))
      with_bugs.insert(fs::path(file).stem().string());
    refuse("there is no bug for lesson ", nn,
           " that can be put in here; lessons with bugs: ", joined(with_bugs));
  }
  if (seed.find_first_not_of("0123456789") != seed.npos) refuse("SEED=", seed, " is not a number");
  const Mutant& drawn = bugs[(seed.empty() ? std::random_device()() : std::stoul(seed)) % bugs.size()];
  std::string names;
  for (const auto& [file, text] : drawn.changed(".")) names += " " + file;
  if (!run("git status --porcelain --" + names).output.empty())
    refuse("a file that the bug is for has changes of yours; commit them first, or draw another with SEED=N");
  for (const auto& [file, text] : drawn.changed(".")) write(file, text);
  write(patch, run("git diff --" + names).output);
  std::cout << "a bug is in what lesson " << nn << " reads. make test-" << nn
            << " shows the symptom; find it. Then git diff shows whether\n"
            << "you were right, and make bug-" << nn << " UNDO=1 takes it out.\n";
  return 0;
}

}  // namespace gradus::course
