#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>

#include "tests/course/commands.h"
#include "tests/course/trees.h"

namespace gradus::course {

int show_marks() {
  const Marks found = marks(sources());
  for (const Place& p : found.places)
    std::cout << "exercise " << p.id << " " << p.file << ":" << p.line << "\n";
  std::cout << text_of(found.faults);
  return found.faults.empty() ? 0 : 1;
}

// ---- the record ---------------------------------------------------------------------------------------
static const std::string kRecord = "tests/course/checked.txt";

// Adds `file` and, recursively, the files of tests/ that it includes.
static void add_with_includes(const std::string& file, Names& all) {
  if (!fs::exists(file) || !all.insert(file).second) return;
  for (const std::string& line : lines_of(read(file)))
    if (line.starts_with("#include \"tests/")) add_with_includes(after(line, "\"", "\""), all);
}

// The files that the exercises of a lesson depend on: the lesson's sources, hints and bugs, the files that
// the bugs change, the files with its marks, its tests with the files of tests/ that they include, its
// judges.
static Names needs(const std::string& nn) {
  Names all;
  for (const std::string& file : files({folder_of(nn)}, {".h", ".cpp", ".cu", ".patch"})) {
    all.insert(file);
    if (file.ends_with(".patch"))
      for (const std::string& line : lines_of(read(file)))
        if (line.starts_with("+++ b/")) all.insert(line.substr(6));
  }
  all.insert(folder_of(nn) + "/hints.md");
  for (const Place& p : marks(sources()).places)
    if (lesson_of(p.id) == nn) all.insert(p.file);
  for (const Recorded& r : recorded())
    if (lesson_of(r.id) == nn) add_with_includes("tests/" + r.program + ".cpp", all);
  for (const std::string judge : {"predict_", "faster_"})
    if (const std::string file = "tests/course/" + judge + nn + ".cpp"; fs::exists(file)) all.insert(file);
  return all;
}

// A hash of these files and of the lines of the lesson's page that begin an exercise.
static std::string hash_of(const std::string& nn) {
  std::string lines;
  for (const std::string& line : lines_of(read(page_of(nn))))
    if (line.starts_with("- " + nn + ".")) lines += line + "\n";
  const Scratch work;
  write(work / "lines", lines);
  const Ran hash =
      run(say("{ sha256sum ", joined(needs(nn)), "; cat ", work / "lines", "; } | sha256sum | cut -c1-16"));
  return nn + " " + trimmed(hash.output);
}

static void record(const std::string& nn, const std::string& hash) {
  Names lines{hash};
  for (const std::string& line : lines_of(read(kRecord)))
    if (!line.starts_with(nn)) lines.insert(line);
  write(kRecord, text_of({lines.begin(), lines.end()}));
}

int changed() {
  const Lines good = lines_of(read(kRecord));
  for (const std::string& name : lessons())
    if (!std::count(good.begin(), good.end(), hash_of(lesson_of(name)))) std::cout << lesson_of(name) << "\n";
  return 0;
}

// ---- the check ----------------------------------------------------------------------------------------
class Check {
 public:
  Check() : tree_("build/course/tree"), marks_(marks(sources())), tests_(recorded()) {}

  void on_paper(const std::string& nn) {
    const std::string page = page_of(nn), folder = folder_of(nn);
    const std::vector<Exercise> given = exercises_on(page);
    if (given.empty()) fault(page, ": has no exercise; the line of an exercise begins with '- ", nn, ".k '");
    Names named;
    int points = 0;
    for (const Exercise& e : given) {
      named.insert(e.id);
      points += e.points;
      parts_on_paper(page, e);
      if (hints_for(e.id, read(folder + "/hints.md")).size() != 3)
        fault(folder, "/hints.md: exercise ", e.id, " does not have the three hints 1. 2. 3.");
      const std::string judge = "tests/course/" + e.judge + "_" + nn + ".cpp";
      if ((e.judge == "predict" || e.judge == "faster") && !has(read(judge), "\"" + e.id + "\""))
        fault("exercise ", e.id, ": ", judge, " should judge it, but does not contain its id");
    }
    const std::vector<Mutant> known = mutants(nn);
    for (const Mutant& m : known) try {
        m.changed(".");
      } catch (const Refusal& r) {
        fault("tests/mutants/", nn, ".txt: ", m.name, " ", r.what());
      }
    for (const Place& p : regions_of(nn)) {
      if (!named.contains(p.id)) fault(page, ": exercise ", p.id, " is in the sources and not on the page");
      if (p.file.ends_with(".h"))
        fault("exercise ", p.id, ": is in a header, which the grader cannot compile");
      if (tests_of(p.id, tests_).empty())
        fault("exercise ", p.id, ": no test has RecordProperty(\"exercise\", \"", p.id, "\")");
      if (std::none_of(known.begin(), known.end(),
                       [&](const Mutant& m) { return m.name.starts_with(p.id + "_") && !m.says.empty(); }))
        fault("exercise ", p.id, ": no mutant of it in tests/mutants/", nn,
              ".txt has a line 'says:' with the text that its tests print for a usual mistake");
    }
    for (const Recorded& r : tests_)
      if (lesson_of(r.id) == nn && !named.contains(r.id))
        fault("tests/", r.program, ".cpp: ", r.test, " records exercise ", r.id, ", which is not on ", page);
    const Lines rows = lines_of(read("lessons/README.md"));
    if (points > 0 && std::none_of(rows.begin(), rows.end(), [&](const std::string& row) {
          return row.starts_with("| " + nn + " |") && has(row.substr(6), say("| ", points, " |"));
        }))
      fault("lessons/README.md: the teachers' table has no row '| ", nn, " | minutes | ", points,
            " |', the points of ", page);
  }

  void built(const std::string& nn) {
    Lines solved, open;
    for (const Place& p : regions_of(nn)) open.push_back(p.id);
    while (step(nn, solved, open)) {
      if (open.empty()) return whole_lesson(nn);
      solved.push_back(open.front());
      open.erase(open.begin());
    }
  }
  void mutants_die(const std::string& nn) {
    Lines names;
    for (const Mutant& m : mutants(nn))
      if (m.name.starts_with(nn + ".")) names.push_back(m.name);
    if (!names.empty() && judge_mutants(names) != 0)
      fault("lesson ", nn, ": not all mutants of its exercises are killed");
  }
  void bad_marks() {
    for (const std::string& line : marks_.faults) fault(line);
  }
  template <class... Parts>
  void fault(const Parts&... parts) {
    std::cout << say(parts...) << std::endl;
    ++faults_;
  }
  int faults() const { return faults_; }
  Lines ids_of(const std::string& nn) const {
    Lines ids;
    for (const Place& p : regions_of(nn)) ids.push_back(p.id);
    return ids;
  }
  size_t tests() const { return tests_.size(); }

 private:
  // The tests with points of their own record the exercise, and their points are those of the exercise.
  void parts_on_paper(const std::string& page, const Exercise& e) {
    const std::vector<Recorded> mine = tests_of(e.id, tests_);
    int sum = 0;
    for (const Exercise::Part& part : e.parts) {
      sum += part.points;
      if (std::none_of(mine.begin(), mine.end(), [&](const Recorded& r) { return part.has(r.test); }))
        fault(page, ": exercise ", e.id, " has points for ", part.test, ", which does not record it");
    }
    if (!e.parts.empty() && sum != e.points)
      fault(page, ": exercise ", e.id, " has ", e.points, " points, and its tests have ", sum);
  }
  // Sorted by their numbers: 08.10 comes after 08.9.
  std::vector<Place> regions_of(const std::string& nn) const {
    std::vector<Place> found;
    std::copy_if(marks_.places.begin(), marks_.places.end(), std::back_inserter(found),
                 [&](const Place& p) { return lesson_of(p.id) == nn; });
    std::sort(found.begin(), found.end(), [](const Place& a, const Place& b) {
      return std::stoi(a.id.substr(3)) < std::stoi(b.id.substr(3));
    });
    return found;
  }
  bool hand_out_to_tree(const std::string& nn, const Lines& open) {
    const fs::path fresh = fs::absolute("build/course/new");
    fs::remove_all(fresh);
    try {
      hand_out(nn, fresh.string(), Names(open.begin(), open.end()));
    } catch (const Refusal& r) {
      std::cout << r.what() << "\n";
      fault("lesson ", nn, ", open: ", joined(open), ": the tree cannot be handed out");
      return false;
    }
    tree_.be_like(fresh);
    return true;
  }
  // Judges a tree in which the exercises `solved` are solved and `open` are open; the student works on the
  // first of `open`. Returns false if the tree cannot be built.
  bool step(const std::string& nn, const Lines& solved, const Lines& open) {
    if (!hand_out_to_tree(nn, open)) return false;
    const std::string where = say("lesson ", nn, ", open: ", joined(open));
    const Ran build = tree_.make("build/tests/" + nn);
    if (!build.good()) {
      std::cout << lines_with(build.output, {"error", "Error"}, 5);
      fault(where, ": the tree does not build");
      return false;
    }
    if (has(build.output, "warning")) {
      std::cout << lines_with(build.output, {"warning"}, 9);
      fault(where, ": warnings");
    }
    for (const std::string& id : solved)
      if (const Ran tests = tree_.tests_of(id); !passed(tests)) {
        tell(tests);
        fault("exercise ", id, " is solved, and its test does not pass while these are open: ", joined(open));
      }
    if (!open.empty()) must_be_open(open.front());
    return true;
  }
  void must_be_open(const std::string& id) {
    const Ran tests = tree_.tests_of(id);
    if (passed(tests)) return fault("exercise ", id, " is open, and its test passes");
    if (has(tests.output, "exercise " + id + " is open")) return;
    tell(tests);
    fault("exercise ", id, " is open, and its test fails without naming it");
  }
  static void tell(const Ran& tests) {
    std::cout << lines_with(tests.output, {"is open", "Failure", "terminate called"}, 3);
  }
  // With all exercises solved: runs all tests, then applies the bugs that students find, one at a time.
  void whole_lesson(const std::string& nn) {
    if (const Ran all = tree_.make("test-" + nn); !all.good()) {
      std::cout << lines_with(all.output, {"rror", "FAIL", "***"}, 8);
      fault("lesson ", nn, ": make test-", nn, " fails in a tree without the later lessons");
    }
    for (const std::string& patch : files({folder_of(nn)}, {".patch"})) {
      const std::string id = fs::path(patch).stem().string().substr(4);  // bug_08.6.patch
      const std::string apply =
          say("cd ", tree_.path(), " && GIT_CEILING_DIRECTORIES=", tree_.path().parent_path(), " git apply ");
      if (const Ran put_in = run(apply + patch); !put_in.good()) {
        fault("exercise ", id, ": the patch with its bug does not apply: ", put_in.output);
        continue;
      }
      if (const Ran build = tree_.make("build/tests/" + nn); !build.good())
        fault("exercise ", id,
              ": with its bug the tree does not build: ", lines_with(build.output, {"rror"}, 1));
      else if (passed(tree_.tests_of(id)))
        fault("exercise ", id, ": with its bug, its test passes");
      run(apply + "-R " + patch);
    }
  }

  TrialTree tree_;
  Marks marks_;
  std::vector<Recorded> tests_;
  int faults_ = 0;
};

int check(const Lines& asked, const Names& parts) {
  Lines numbers = asked;
  if (asked.empty())
    for (const std::string& name : lessons()) numbers.push_back(lesson_of(name));
  Check check;
  check.bad_marks();
  const bool build = parts.contains("built") && check.faults() == 0;
  std::map<std::string, int> faults;
  for (const std::string& nn : numbers) {
    const int before = check.faults();
    check.on_paper(nn);
    faults[nn] = check.faults() - before;
  }
  for (const std::string& nn : build ? numbers : Lines{}) {
    const auto start = std::chrono::steady_clock::now();
    const std::string hash = hash_of(nn);
    const int before = check.faults();
    check.built(nn);
    if (parts.contains("mutants") && check.faults() == before) check.mutants_die(nn);
    if (faults[nn] + check.faults() == before) record(nn, hash);
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start);
    std::cout << "lesson " << nn << ": " << joined(check.ids_of(nn)) << ": built and tested, "
              << seconds.count() << " s" << std::endl;
  }
  std::cout << "checked the exercises of lessons " << joined(numbers) << ": " << check.tests()
            << " tests record an exercise\n"
            << check.faults() << " faults\n";
  return check.faults() == 0 ? 0 : 1;
}

}  // namespace gradus::course
