#include "tests/course/graded_build.h"

#include <algorithm>
#include <iostream>
#include <regex>

namespace gradus::course {

constexpr int kCompiling = 240;            // seconds
constexpr uintmax_t kLargest = 256 << 10;  // bytes of a submitted file

static std::string object_of(const std::string& file) {
  const std::string stem = fs::path(file).replace_extension().string();
  return "build/obj/" + std::string(file.ends_with(".cu") ? "emu/" : "") + stem + ".o";
}
fs::path GradedBuild::copy_of(const std::string& whose, const std::string& file) const {
  return cell_ / ("objects/" + whose + "/" + replaced(file, "/", "_") + ".o");
}
static void put(const fs::path& from, const fs::path& to) {
  fs::create_directories(to.parent_path());
  std::error_code error;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error) throw GraderError(say(from.string(), " cannot be copied: ", error.message()));
}

// nm's types for symbols that each object defines that uses them; the linker takes the first definition.
static bool is_shared(const std::string& type) {
  return !type.empty() && (type[0] == 'W' || type[0] == 'V' || type[0] == 'u');
}

GradedBuild::GradedBuild(const std::string& lesson, const fs::path& submission, Cell& cell)
    : submission_(submission), cell_(cell) {
  for (const Place& p : marks(sources()).places)
    if (lesson_of(p.id) == lesson) files_[p.id] = p.file, all_files_.insert(p.file);
  if (files_.empty()) refuse("no file here has marks of lesson ", lesson, "; call it in the solved tree");
  for (const Recorded& r : recorded())
    if (lesson_of(r.id) == lesson) tests_.push_back(r);
}

// ---- the solved tree ----------------------------------------------------------------------------------
void GradedBuild::prepare(const Lines& other_programs) {
  Names goals{"build/standins.a", "build/obj/tests/course/grade_main.o"}, programs;
  for (const Recorded& r : tests_) programs.insert(r.program);
  for (const std::string& p : programs) goals.insert("build/obj/tests/" + p + ".o");
  for (const std::string& f : all_files_) goals.insert(object_of(f));
  goals.insert(other_programs.begin(), other_programs.end());
  if (!fs::exists("build/libgradus.a")) std::cerr << "grade: building gradus first, which takes minutes\n";
  const Ran build = run(say("unset MAKEFLAGS MAKELEVEL MFLAGS; make grade-rest TO=", cell_ / "objects/rest.a",
                            " WITHOUT=", shell_word(joined(all_files_)), " ", joined(goals)));
  if (!build.good()) throw GraderError("the solved tree does not build: " + after(build.output, "rror"));
  const Ran copied =
      run(say("tar -cf - Makefile data kernels src lessons tests | tar -xf - -C ", cell_ / "tree", " && cd ",
              cell_ / "tree", " && rm -rf ", joined(all_files_), " tests/mutants lessons/*/*.patch"));
  if (!copied.good()) throw GraderError("the tree cannot be copied");
  for (const std::string& p : other_programs) put(p, cell_ / "bin" / fs::path(p).filename());
  put("build/obj/tests/course/grade_main.o", cell_ / "objects/grade_main.o");
  put("build/standins.a", cell_ / "objects/standins.a");
  for (const std::string& p : programs) put("build/obj/tests/" + p + ".o", copy_of("tests", p));
  for (const std::string& f : all_files_) put(object_of(f), copy_of("solved", f));
  const fs::path objects = cell_ / "objects";
  run(say("mkdir ", objects / "student", "; chmod -R a+rX ", cell_ / "tree", " ", cell_ / "bin", " ",
          objects));
  const Ran all = run(
      say("nm -P -A -g ", objects, "/*.[ao] ", objects, "/*/*.o $(${CXX:-g++} -print-file-name=libgtest.a)"));
  for (const std::string& line : lines_of(all.output)) {  // "FILE: NAME TYPE ..."
    const std::string name = after(line, ": ", " ");
    taken_.insert(name);
    const std::string type = after(line, ": " + name + " ");
    if (is_shared(type)) shared_[name].push_back(after(line, "", ": "));
    if (type.starts_with("U")) used_.insert(name);
  }
}

// ---- the student's files ------------------------------------------------------------------------------
// Whether this file of the submission is regular, with no link in its path.
bool GradedBuild::is_plain(const fs::path& path) const {
  fs::path at = submission_;
  for (const fs::path& part : path)
    if (fs::is_symlink(at /= part)) return false;
  return fs::is_regular_file(at);
}

Problem GradedBuild::take(const std::string& file, const fs::path& to) const {
  fs::path from = file;
  const auto same_name = std::count_if(all_files_.begin(), all_files_.end(), [&](const std::string& f) {
    return fs::path(f).filename() == from.filename();
  });
  if (fs::is_symlink(submission_ / from)) return {"open", file + " was not handed in: it is a link"};
  if (!is_plain(from) && same_name <= 1) from = from.filename();
  if (!is_plain(from)) return {"open", file + " was not handed in"};
  if (fs::file_size(submission_ / from) > kLargest)
    return {"not_built", say(file, " has more than ", kLargest, " bytes")};
  put(submission_ / from, to);
  fs::permissions(to, fs::perms(0644));
  return {};
}

void GradedBuild::compile() {
  for (const std::string& file : all_files_) compile_one(file);
}
void GradedBuild::compile_one(const std::string& file) {
  Problem& problem = problems_[file] = take(file, cell_ / ("tree/" + file));
  if (!problem.state.empty()) return;
  const fs::path object = cell_ / ("scratch/" + object_of(file));
  const Ended ended =
      cell_.limited(kCompiling, say("make -s -j1 BUILD=", cell_ / "scratch/build", " ", object));
  std::string wrong;
  if (!ended.good() || !fs::is_regular_file(fs::symlink_status(object))) {
    wrong = first_error(ended.output);
    if (wrong.empty()) wrong = file + ": the compiler needs too much time or memory";
  } else if (const std::string outside = included_from_outside(object); !outside.empty()) {
    wrong = file + " includes " + outside + ", which is not part of gradus";
  } else {
    wrong = wrong_symbols(file, object);
  }
  if (!wrong.empty()) {
    problem = {"not_built", wrong};
    return;
  }
  put(object, copy_of("student", file));
  keep_to_itself(file, copy_of("student", file));
}

std::string GradedBuild::included_from_outside(fs::path object) const {
  std::istringstream words(read(object.replace_extension(".d")));
  for (std::string word; words >> word;) {
    while (word.ends_with(":") || word.ends_with("\\")) word.pop_back();
    word = fs::path(word).lexically_normal().string();
    if ((word.starts_with("/") || has(word, "../")) && !has(word, (cell_ / "scratch").string())) return word;
  }
  return "";
}

static std::map<std::string, char> symbols_of(const fs::path& object) {  // the types, by name
  std::map<std::string, char> types;
  for (const std::string& line : lines_of(run(say("nm -P ", object)).output))
    types[after(line, "", " ")] = (after(line, " ", " ") + " ")[0];
  return types;
}

// Functions of gradus, of C++ and of mathematics, and functions that give no advantage in the cell; but none
// of GoogleTest, and none that change or read the program itself.
static bool may_call(const std::string& name) {
  static const std::regex of_these(
      "_Z(N[KOR]*6gradus|N?[KOR]*S[absiodt]|GVN?6gradus|T[HW]N6gradus|T[ISTV]|nw|na|dl|da).*|"
      "__(cxa_|gxx_|dso_handle|dynamic_cast|libc_single|stack_chk|tls_get_addr|assert_fail|errno).*|"
      "__[a-z]+[hsdxtb][cfi]([hsdxtb][cfi])?[2-4]?|"  // of libgcc
      "_Unwind_Resume|_GLOBAL_OFFSET_TABLE_|(GOMP|omp)_.*|"
      "(__)?(isoc23_)?(mem(cpy|move|set|cmp|chr)|str(len|n?cmp|n?cpy|n?cat|r?chr|str|to.*)|(m|c|re|aligned_)"
      "alloc|free|qsort|"
      "is(al(num|pha)|digit|graph|p(rint|unct)|space|upper|lower)|to(upper|lower)|"
      "v?[fs]?n?printf|f?put(s|c|char)|fwrite|fflush)(_chk)?|"
      "c?f?abs[fl]?|fm(a|in|ax|od)[fl]?|"
      "c?(a?(sin|cos|tan)h?|sincos|atan2|exp(2|m1)?|i?log(2|10|1p|b)?|pow|sqrt|cbrt|erfc?|[lt]gamma|floor|"
      "ceil|"
      "trunc|l?l?r(ound|int)|nearbyint|ldexp|frexp|modf|hypot|copysign|remainder|nextafter|fdim)[fl]?|"
      "std(out|err)|_?[eE]xit|abort|pthread_.*mutex.*|fork|setsid|signal|shmget|rand"),
      not_these(".*(basic_file|basic_.?fstream|6thread|10filesystem|7testing).*");
  return std::regex_match(name, of_these) && !std::regex_match(name, not_these);
}

// The symbols that the solution's object defines for other objects: functions and data, and the vtable of a
// class, which the compiler only emits together with the first virtual function.
Names GradedBuild::wanted_of(const std::string& file) const {
  Names names;
  for (const auto& [name, type] : symbols_of(copy_of("solved", file)))
    if (type <= 'T' || (is_shared({type}) && shared_.at(name).size() == 1 && used_.contains(name)))
      names.insert(name);
  return names;
}

// Why the symbols of a student's object are wrong, or "". It must define what the solution's object defines.
// It may not define what other files take from elsewhere, such as main, write or a function of the test, nor
// an ifunc, whose resolver runs before everything else.
std::string GradedBuild::wrong_symbols(const std::string& file, const fs::path& object) const {
  const auto readable = [](const std::string& name) {
    return trimmed(run("c++filt " + shell_word(name)).output);
  };
  const std::map<std::string, char> defined = symbols_of(object);
  const Names wanted = wanted_of(file);
  for (const std::string& name : wanted)
    if (const auto it = defined.find(name);
        it == defined.end() || (it->second > 'T' && !is_shared({it->second})))
      return file + " no longer defines " + readable(name);
  for (const auto& [name, type] : defined) {
    if (type == 'i') return file + " defines an ifunc, " + readable(name);
    if (type <= 'T' && !wanted.contains(name) && taken_.contains(name))
      return file + " defines " + readable(name) + ", which belongs to another file";
  }
  const std::map<std::string, char> solved = symbols_of(copy_of("solved", file));
  for (const auto& [name, type] : defined)
    if ((type == 'U' || type == 'w') && !may_call(name) && !solved.contains(name))
      return file + " calls " + readable(name) + ", which no exercise needs";
  const bool has_own_code =
      run(say("objdump -h ", object, " | grep -E '[.](pre|init|fini|ctors|dtors)' | grep -v init_array; ",
              "objdump -d ", object, " | grep -wE 'syscall|sysenter|int +[$]0x80'"))
          .good();
  return has_own_code ? file + " makes system calls, or has code that runs before main" : "";
}

// Hides all other symbols of the student's object from the other files. It keeps the wanted symbols, and
// those that other objects define, too, because the definitions in these objects are linked first.
void GradedBuild::keep_to_itself(const std::string& file, const fs::path& object) const {
  const std::string solved = copy_of("solved", file).string(), list = (cell_ / "objects/seen").string();
  Names seen = wanted_of(file);
  for (const auto& [name, type] : symbols_of(object))
    if (const auto found = shared_.find(name); found != shared_.end() && is_shared({type}))
      if (std::any_of(found->second.begin(), found->second.end(),
                      [&](const std::string& o) { return o != solved; }))
        seen.insert(name);
  write(list, joined(seen, "\n") + "\n");
  if (!run(say("objcopy --keep-global-symbols=", list, " ", object)).good())
    throw GraderError(file + ": its symbols cannot be hidden");
}

// The first line with an error. "memory" alone is none: it is in the names of files of src/memory.
std::string GradedBuild::first_error(const std::string& output) const {
  for (const std::string& line : lines_of(output))
    for (const std::string word :
         {"error", "undefined", "multiple", "of memory", "virtual memory", "allocate memory"})
      if (has(line, word))
        return replaced(replaced(replaced(line, (cell_ / "tree/").string(), ""), (cell_ / "").string(), ""),
                        "./", "");
  return "";
}

// The student's object comes last: if several objects define a function, the linker takes the first.
std::string GradedBuild::link(const std::string& program, const fs::path& to, const std::string& id) {
  const std::string submitted = id.empty() ? "" : files_[id], rest = (cell_ / "objects/rest.a").string();
  Lines objects{(cell_ / "objects/grade_main.o").string(), copy_of("tests", program).string()};
  for (const std::string& f : all_files_)
    if (f != submitted) objects.push_back(copy_of("solved", f).string());
  objects.insert(objects.end(), {"-Wl,--whole-archive", rest, "-lgtest", "-Wl,--no-whole-archive"});
  if (!submitted.empty()) objects.push_back(copy_of("student", submitted).string());
  objects.push_back((cell_ / "objects/standins.a").string());
  const fs::path made = cell_ / "scratch/program";
  const Ended ended =
      cell_.limited(kCompiling, say("make -s -j1 BUILD=", cell_ / "scratch/build", " grade-link TO=", made,
                                    " LINKED=", shell_word(joined(objects))));
  if (!ended.good() || !fs::is_regular_file(fs::symlink_status(made))) return first_error(ended.output) + " ";
  put(made, to);
  return "";
}

}  // namespace gradus::course
