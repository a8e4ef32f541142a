#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <regex>

#include "tests/course/commands.h"
#include "tests/course/tree.h"

namespace gradus::course {

static bool is_code(const std::string& file) {
  return std::count(kCode.begin(), kCode.end(), fs::path(file).extension().string()) > 0;
}
static bool is_source(const std::string& file) {
  return is_code(file) && std::regex_search(file, std::regex("^(kernels|src|lessons)/"));
}

// Notes, model answers, and what goes with them, for teachers only.
static const std::string kOfTeachers = "tests/course/teacher/";

// A test belongs to a later lesson if its name says so, if it includes files of a later lesson, or if all its
// suites are named after later lessons.
static bool is_of(const Names& later, const std::string& file) {
  static const std::regex named(
      "(lessons|tests/lessons|tests/mutants)/([0-9][0-9])[_.].*|tests/course/[a-z]*_([0-9][0-9])\\..*");
  std::smatch part;
  if (std::regex_match(file, part, named)) return later.contains(part.str(2) + part.str(3));
  if (!std::regex_search(file, std::regex("^tests/.*\\.(h|cpp)$"))) return false;
  Names tested;
  for (const std::string& line : lines_of(read(file))) {
    if (later.contains(after(line, "#include \"lessons/", "_"))) return true;
    if (std::regex_search(line, std::regex("^(TYPED_)?TEST(_F|_P)?\\(")) &&
        std::regex_search(line, part, std::regex("L([0-9][0-9])_")))
      tested.insert(part[1]);
  }
  return !tested.empty() && std::includes(later.begin(), later.end(), tested.begin(), tested.end());
}

// The lines that may not be in the tree: those of the solutions of open exercises, without surrounding
// blanks, if they have more than 12 characters and are not in the sources outside these solutions.
static Names secrets_of(const Lines& files, const Names& open) {
  Names secrets;
  std::string elsewhere;
  for (const std::string& file : files) {
    bool inside = false;
    for (const std::string& whole : lines_of(read(file))) {
      const std::string line = trimmed(whole);
      if (has(line, "BEGIN SOLUTION"))
        inside = open.contains(trimmed(after(line, "BEGIN SOLUTION")));
      else if (has(line, "// STUB:"))
        inside = false;
      else if (inside && line.size() > 12)
        secrets.insert(line);
      if (!inside) elsewhere += line + "\n";
    }
  }
  std::erase_if(secrets, [&](const std::string& s) { return has(elsewhere, s); });
  return secrets;
}

// Git settings of this machine, or of a repository around this one, must not change what is handed out.
static void use_plain_git() {
  setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1);
  setenv("GIT_CONFIG_NOSYSTEM", "1", 1);
  for (const char* name : {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"}) unsetenv(name);
}

// Makes the tree that is handed out.
class HandOut {
 public:
  HandOut(const std::string& lesson, const fs::path& tree) : tree_(tree) {
    use_plain_git();
    for (const std::string& file : lines_of(run("git -c core.quotepath=off ls-files").output))
      if (fs::is_regular_file(file)) all_.push_back(file);
    if (lesson != "all")
      for (const std::string& name : lessons())
        if (lesson_of(name) > lesson) later_.insert(lesson_of(name));
    std::copy_if(all_.begin(), all_.end(), std::back_inserter(early_), [&](const std::string& file) {
      return !file.starts_with(kOfTeachers) && !is_of(later_, file);
    });
    std::copy_if(early_.begin(), early_.end(), std::back_inserter(marked_), [](const std::string& file) {
      return is_source(file) && has(read(file), "BEGIN SOLUTION");
    });
  }
  // The exercises of one lesson, or of all.
  Names exercises_of(const std::string& lesson) const {
    Names ids;
    for (const Place& p : marks(marked_).places)
      if (lesson == "all" || lesson_of(p.id) == lesson) ids.insert(p.id);
    return ids;
  }
  void make(const Names& open) {
    const Marks found = marks(marked_);
    if (!found.faults.empty()) refuse(text_of(found.faults), "the marks of the exercises are not right");
    for (const std::string& file : early_) copy(file);
    for (const std::string& file : marked_) write(tree_ / file, as_student(read(file), open));
    for (const std::string& file : early_) {
      if (file.starts_with("tests/mutants/")) leave_out_mutants(file, open);
      if (file.ends_with(".patch") &&
          std::regex_search(read(file), std::regex("(BEGIN|END) SOLUTION|// STUB:")))
        remake_patch(file, open);
    }
    for (const std::string page : {"README.md", "lessons/README.md"}) leave_out_rows(page);
    look_for_leaks(open);
  }
  size_t count() const { return early_.size(); }

 private:
  void copy(const std::string& file) {
    fs::create_directories((tree_ / file).parent_path());
    fs::copy(file, tree_ / file, fs::copy_options::copy_symlinks);
    fs::last_write_time(tree_ / file, fs::last_write_time(file));
  }
  // Removes mutants of open exercises, because they show the solutions.
  void leave_out_mutants(const std::string& file, const Names& open) {
    std::string kept;
    bool secret = false, gap = false;
    for (const std::string& line : lines_of(read(file))) {
      if (line.empty()) secret = false;
      if (line.size() > 4 && line[2] == '.') secret = open.contains(after(line, "", "_"));
      if (!secret && !(line.empty() && gap)) kept += line + "\n";
      if (!secret) gap = line.empty();
    }
    write(tree_ / file, kept);
  }
  // Makes a patch that contains marks for the student's file; patches without marks apply to it as they are.
  void remake_patch(const std::string& patch, const Names& open) {
    const Scratch bugged;
    Lines changed;
    for (const std::string& line : lines_of(read(patch)))
      if (line.starts_with("+++ b/")) changed.push_back(line.substr(6));
    for (const std::string& file : changed) write(bugged / file, read(file));
    if (!run(say("cd ", bugged.path(), " && git apply - <", fs::absolute(patch))).good())
      refuse(patch, " does not apply to the sources");
    std::string remade;
    for (const std::string& file : changed) {
      write(bugged / "student", as_student(read(bugged / file), open));
      const Ran diff = run(
          say("diff -u --label a/", file, " --label b/", file, " ", tree_ / file, " ", bugged / "student"));
      if (diff.good()) refuse(patch, " changes only lines of open exercises in ", file);
      remade += diff.output;
    }
    write(tree_ / patch, remade);
  }
  // Removes the rows of tables and the commands that name a later lesson, and the lines with a link to the
  // teachers' folder, from a page that lists lessons.
  void leave_out_rows(const std::string& page) {
    if (!fs::exists(tree_ / page)) return;
    const std::string numbers = "(" + (later_.empty() ? "none" : joined(later_, "|")) + ")";
    const std::regex row("^[|] *[[]" + numbers + "_|^make (lesson|test)-" + numbers),
        goes_on("^[ \t]+[^ \t]");
    std::string kept;
    bool inside = false;
    for (const std::string& line : lines_of(read(page))) {
      inside = std::regex_search(line, row) || (inside && std::regex_search(line, goes_on));
      if (!inside && !has(line, kOfTeachers)) kept += line + "\n";
    }
    write(tree_ / page, kept);
  }
  void look_for_leaks(const Names& open) {
    Lines code;
    std::copy_if(all_.begin(), all_.end(), std::back_inserter(code), is_source);
    const Scratch work;
    write(work / "secrets", joined(secrets_of(code, open), "\n"));
    const Ran leaks =
        run(say("cd ", tree_, " && [ -s ", work / "secrets", " ] && grep -rnF -f ", work / "secrets", " ."));
    if (!leaks.good()) return;
    std::string said;
    for (const std::string& line : lines_of(leaks.output)) said += say("leak: ", line.substr(2, 198), "\n");
    refuse(said, "these lines give a solution away; the tree is not handed out");
  }

  fs::path tree_;
  Lines all_, early_, marked_;  // early: without later lessons; marked: early files with exercises
  Names later_;
};

static void commit(const fs::path& tree, const std::string& what) {
  const std::string date = trimmed(run("git log -1 --format=%cI").output);
  if (!std::regex_match(date, std::regex("[-+:T0-9Z]+")))
    refuse("there is no commit here whose date could be used");
  for (const std::string who : {"AUTHOR", "COMMITTER"}) {
    setenv(("GIT_" + who + "_NAME").c_str(), "gradus", 1);
    setenv(("GIT_" + who + "_EMAIL").c_str(), "gradus@example.org", 1);
    setenv(("GIT_" + who + "_DATE").c_str(), date.c_str(), 1);
  }
  if (!run(say("cd ", tree,
               " && git -c init.templateDir= init -q && git symbolic-ref HEAD refs/heads/main && git add -Af "
               ". && ",
               "git -c commit.gpgsign=false commit -q -m ", shell_word("gradus: " + what)))
           .good())
    refuse("git could not make the commit");
}

std::string hand_out(const std::string& lesson, const std::string& out, const Names& open, bool github) {
  const fs::path folder = fs::absolute(out).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) refuse("the folder for ", out, " cannot be created");
  const Scratch work(folder);
  HandOut made(lesson, work / "tree");
  made.make(open);
  if (github) add_workflow(work / "tree", open);
  const std::string what = lesson == "all" ? "all exercises" : "lesson " + lesson;
  commit(work / "tree", what);
  if (fs::exists(out)) fs::remove(out);
  fs::rename(work / "tree", out);
  const std::string hash = trimmed(run("git -C " + shell_word(out) + " rev-parse --short HEAD").output);
  return say(what, " in ", out, ": ", made.count(), " files, open: ", joined(open), " ", hash);
}

int student(const std::string& lesson, const std::string& out, bool github) {
  const std::string usage = "write make student LESSON=NN OUT=folder, or make student ALL=1 OUT=folder";
  use_plain_git();
  Lines numbers;
  for (const std::string& file : lines_of(run("git ls-files 'lessons/[0-9][0-9]_*/main.cpp'").output))
    if (file.starts_with("lessons/")) numbers.push_back(file.substr(8, 2));
  if (numbers.empty()) refuse("git tracks no lesson here; call it from the root of a clone of gradus");
  if (lesson.empty()) refuse("LESSON is missing; the lessons are ", joined(numbers), "; ", usage);
  if (out.empty()) refuse("OUT is missing, the folder to write to; ", usage);
  if (lesson != "all" && !std::count(numbers.begin(), numbers.end(), lesson))
    refuse("there is no lesson ", lesson, "; the lessons are ", joined(numbers));
  if (fs::exists(out) && !fs::is_directory(out))
    refuse(out, " is not a folder; name one that is empty or does not exist");
  if (fs::exists(out) && !fs::is_empty(out))
    refuse(out, " is not empty; name a folder that is empty or does not exist");
  std::cout << "student: " << hand_out(lesson, out, HandOut(lesson, "").exercises_of(lesson), github) << "\n";
  return 0;
}

}  // namespace gradus::course
