// grade_check [NN…]: grades submissions whose right grades are known (make check-grade).
//   hostile   for lesson 02: each does something forbidden; no other exercise may lose points for it
//   lessons   for each lesson NN (by default all): solved, it has all points; an open exercise loses its own
// No submission is stored: each is made from the solved files, without their marks.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>

#include "tests/course/grade_trial.h"

namespace gradus::course {

namespace {

const std::string kTanh = "kernels/cpu/tanh.cpp", kLinear = "src/ops/linear.cpp";

class GradeCheck : public GradeTrial {
 public:
  void hostile() {
    const double start = now();
    calls_what_it_must_not();
    hands_in_otherwise();
    std::cout << count_ << " hostile submissions, " << int(now() - start) << " s" << std::endl;
    formats();
    grader_error();
    parts();
  }

  // The solution has all points; each exercise that is open loses only its own points.
  void lesson(const std::string& nn) {
    const double start = now();
    Lines ids;
    for (const Place& p : marks(sources()).places)
      if (lesson_of(p.id) == nn) ids.push_back(p.id);
    one(nn, "");
    const int full = report_.value("total", 0), most = report_.value("max", 0);
    if (full != most) fail("lesson ", nn, ", solved: ", full, " of ", most, " points");
    for (const std::string& id : ids) one(nn, id);
    std::cout << "lesson " << nn << ": solved: " << full << " of " << most
              << " points; each open loses its own: " << joined(ids) << ", " << int(now() - start) << " s"
              << std::endl;
  }

 private:
  // tanh.cpp, solved, with `body` at the start of its backward function and `top` at the top of the file.
  void with(const std::string& body, const std::string& top = "") {
    fresh();
    solve({}, {kTanh, kLinear});
    std::string text =
        "#include <csignal>\n#include <cstdio>\n#include <cstdlib>\n#include <unistd.h>\n" + top + "\n";
    for (const std::string& line : lines_of(read(sub() / kTanh)))
      text += line + "\n" + (line.starts_with("void tanh_bwd") ? body + "\n" : "");
    write(sub() / kTanh, text);
  }
  // Grades and expects this state of 02.3; 02.5 passes if it is handed in, and 02.2 is not handed in.
  void expect(const std::string& what, const std::string& state) {
    const double start = now();
    const bool linear = fs::exists(sub() / kLinear) || fs::exists(sub() / "linear.cpp");
    const int code = grade_it("02");
    ++count_;
    const std::string states = say(row("02.2").value("state", "?"), " ", row("02.3").value("state", "?"), " ",
                                   row("02.5").value("state", "?"));
    const std::string wanted = say("open ", state, linear ? " passed" : " open");
    if (states != wanted) fail(what, ": ", states, ", not ", wanted);
    int sum = 0;
    for (const Json& r : report_.value("exercises", Json::array())) {
      sum += r.value("points", 0);
      if (r.value("points", 0) != (r.value("state", "") == "passed" ? 10 : 0))
        fail(what, ": points of ", r.value("id", ""));
    }
    if (sum != report_.value("total", -1)) fail(what, ": the total is not the sum of the rows");
    if (code != 0) fail(what, ": the exit code is ", code);
    if (getuid() == 0 && !report_.value("isolated", false)) fail(what, ": it was not isolated");
    // The grader's folder is gone, so a process that is left over has a deleted program.
    if (run("ls -l /proc/[0-9]*/exe 2>/dev/null | grep -F /.course. | grep -F '(deleted)'").good())
      fail(what, ": one of its processes still runs");
    std::cout << what << ": " << states << ", " << int(now() - start)
              << " s: " << row("02.3").value("message", "").substr(0, 90) << std::endl;
  }

  // ---- hostile submissions
  void calls_what_it_must_not() {
    const struct {
      std::string what, state, body, top;
    } rows[] = {
        {"exit(0)", "crashed", "std::exit(0);", ""},
        {"abort", "crashed", "std::abort();", ""},
        {"endless loop", "timeout", "for (volatile int i = 0;; i = i + 1) {}", ""},
        {"10 GB", "memory",
         "volatile char* p = new char[10L << 30]; for (long i = 0; i < 10L << 30; i += 4096) p[i] = 1;", ""},
        {"fork bomb", "timeout", "for (;;) if (fork() == 0) setsid();", ""},
        {"opens files", "not_built", "std::fopen(\"../out/report\", \"w\");\nreturn;", ""},
        {"fake JSON", "not_built", "for (int fd = 1; fd < 16; fd++) dprintf(fd, \"%s\", fake); _exit(0);",
         R"(static const char* fake = "{\"testsuites\": [{\"name\": \"L02_Gradcheck\", \"testsuite\": ["
"{\"name\": \"Tanh\", \"status\": \"RUN\", \"result\": \"COMPLETED\"}]}]}\n[  PASSED  ] 1 test.\n";)"},
        {"does not compile", "not_built", "this is not C++;", ""},
        {"shadows RUN_ALL_TESTS", "failed", "return;", "int RUN_ALL_TESTS() { return 0; }"},
        {"exits in a static constructor", "crashed", "", "struct S { S() { _exit(0); } } s;"},
        {"huge output", "failed", "for (int i = 99999; i--;) std::printf(\"%01000d\\n\", i);\nreturn;", ""},
        {"signal handler", "crashed",
         R"(for (int s = 1; s < 32; s++) std::signal(s, [](int) { _exit(0); });
            *static_cast<volatile int*>(nullptr) = 1;)",
         ""},
        {"a main of its own", "not_built", "", "int main() { return 0; }"},
        {"a write of its own", "not_built", "",
         "extern \"C\" ssize_t write(int, const void*, size_t n) { return n; }"},
        {"a weak write of its own", "failed", "return;",
         "extern \"C\" [[gnu::weak]] ssize_t write(int, const void*, size_t) { _exit(0); }"},
        {"a weak function of the test's", "failed", "return;",
         R"(extern "C" __attribute__((weak)) int failed() __asm__("_ZNK7testing10TestResult6FailedEv");
            int failed() { return 0; })"},
        {"a function that is chosen before the key is read", "not_built", "return;",
         R"(extern "C" { static void go() {} static void (*choose())() { return go; }
            static void chosen() __attribute__((ifunc("choose"), used)); })"},
        {"swallows failures", "not_built",
         R"(static testing::TestPartResultArray results;
            static testing::ScopedFakeTestPartResultReporter swallow(
                testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
            return;)",
         "#include <gtest/gtest-spi.h>"},
        {"calls much of C++, which is allowed", "passed",
         R"(std::ostringstream text; std::map<std::string, std::vector<float>> rows;
            for (int i = 0; i < 9; i++) rows[std::to_string(i % 3)].push_back(sinf(i) + cosf(i) + isspace(i));
            for (auto& [name, row] : rows) std::sort(row.begin(), row.end()), std::cerr << name << row.at(0);
            if (!dynamic_cast<std::ostringstream*>((std::ostream*)&text)) throw std::runtime_error("no");
            std::cerr << std::move(text).str() << double(__int128(n) / rows.size()) << std::to_string(1.f);
            std::fprintf(stderr, "here\n"), std::cerr << std::abs(std::exp(std::complex<float>(1, 2)));)",
         "#include <bits/stdc++.h>"}};
    for (const auto& r : rows) {
      with(r.body, r.top);
      expect(r.what, r.state);
    }
  }
  void hands_in_otherwise() {
    fresh();
    expect("empty", "open");
    with("");
    fs::remove(sub() / kTanh);
    fs::create_symlink(fs::absolute(kTanh), sub() / kTanh);
    expect("link out of the tree", "open");
    with("");
    solve({"02.3"}, {kTanh});
    write(sub() / "tests/autograd/autograd_test.cpp", "int main() {}\n");
    write(sub() / "Makefile", "all:\n\ttrue\n");
    expect("edits tests", "open");
    with("");
    fs::rename(sub() / kTanh, sub() / "kernels/cpu/tanh_final.cpp");
    expect("wrong file names", "open");
    with("");
    write(sub() / kTanh, "");
    expect("empty file", "not_built");
    with("");
    fs::rename(sub() / "kernels", base_ / "away");
    fs::create_symlink(base_ / "away", sub() / "kernels");
    expect("link to a folder", "open");
    outlives();
    with("");
    write(sub() / kTanh, "#include \"" + fs::absolute(kTanh).string() + "\"\n");
    expect("includes the solution", "not_built");
    with("");
    for (const std::string& file : {kTanh, kLinear})
      fs::rename(sub() / file, sub() / fs::path(file).filename());
    for (const std::string folder : {"src", "kernels"}) fs::remove_all(sub() / folder);
    expect("all files in one folder", "passed");
  }
  // The shared memory of a run is removed; a file of the user id that the run would have drawn stays.
  void outlives() {
    const std::string mine = (base_ / "mine").string();
    const auto shared = [] { return run("awk '$8 >= 20000 && $8 < 60000' /proc/sysvipc/shm").output; };
    const std::string there = shared();  // of the user ids that a run may draw; others change meanwhile
    write(mine, "");
    if (getuid() == 0 && chown(mine.c_str(), 20000 + uid_t(getpid()) % 40000, 0)) fail("no chown");
    with("shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600);\nreturn;",
         "#include <sys/ipc.h>\n#include <sys/shm.h>");
    expect("shared memory", "failed");
    if (getuid() == 0 && (shared() != there || !fs::exists(mine)))
      fail("shared memory is left, or a file of another user is gone");
  }
  // The other formats say the same as grade.json, whatever characters a message has.
  void formats() {
    with("", "#error \"a \\ <b> & c\"");
    expect("odd letters", "not_built");
    const std::string folder = out().parent_path().string() + "/", junit = read(folder + "junit.xml");
    const Json gradescope = Json::parse(read(folder + "results.json"), nullptr, false),
               total = report_["total"];
    if (gradescope["score"] != total || gradescope["tests"].size() != report_["exercises"].size() ||
        !has(gradescope["tests"][2]["output"], "\"a \\ <b> & c\""))
      fail("results.json: ", gradescope.dump());
    if (!has(junit, "errors=\"0\"") || !has(junit, "&quot;a \\ &lt;b&gt; &amp; c&quot;"))
      fail("junit.xml: ", junit);
    const Json scores = Json::parse(read(folder + "autolab.txt"), nullptr, false)["scores"];
    if (scores["02.3"] != 0 || scores["02.5"] != 10) fail("autolab.txt: ", scores.dump());
  }
  // An error of the grader itself: no row may blame the student.
  void grader_error() {
    fresh();
    solve({}, {kTanh});
    write(base_ / "bin/ar", "#!/bin/sh\nexit 1\n");
    fs::permissions(base_ / "bin/ar", fs::perms(0755));
    const std::string path = std::getenv("PATH");
    setenv("PATH", ((base_ / "bin").string() + ":" + path).c_str(), 1);
    const int code = grade_it("02");
    setenv("PATH", path.c_str(), 1);
    for (const Json& r : report_["exercises"])
      if (r["state"] != "grader_error" || !r["points"].is_null()) fail("a grader without ar: ", r.dump());
    if (code != 2 || !report_["total"].is_null()) fail("a grader without ar: exit code ", code);
    for (const std::string file : {"results.json", "autolab.txt"})
      if (has(read(out().parent_path() / file), "score")) fail("a grader without ar: ", file, " has a score");
  }

  // Half of an exercise: one of two tests that have points passes; one of two answers is right.
  void parts() {
    fresh();
    const std::string tape = "src/autograd/tape.cpp", answers = folder_of("02") + "/answers.txt";
    const std::string skips = "!node_dy.empty()", solved = as_student(read(tape), {});
    if (!has(solved, skips)) fail("parts: ", tape, " has no ", skips);
    write(sub() / tape, replaced(solved, skips, "node_dy.empty() ? throw 1 : true"));
    answer("02");
    std::string text;
    for (const std::string& line : lines_of(read(sub() / answers)))
      text += (line.starts_with("02.4 backward =") ? "02.4 backward =" : line) + "\n";
    write(sub() / answers, text);
    grade_it("02");
    if (row("02.2")["state"] != "failed" || row("02.2")["points"] != 6) fail("parts: one of two tests");
    if (row("02.4")["state"] != "open" || row("02.4")["points"] != 2) fail("parts: one of two answers");
    if (report_["by_a_person"] != Json{"02.6"}) fail("parts: what a person grades");
  }

  // ---- lessons
  // With the exercise `open` open, or none: only its points are lost.
  void one(const std::string& nn, const std::string& open) {
    fresh();
    Names files, ids;
    for (const Place& p : marks(sources()).places)
      if (lesson_of(p.id) == nn) files.insert(p.file), ids.insert(p.id);
    solve({open}, files);
    if (open.empty()) answer(nn);
    grade_it(nn);
    for (const std::string& id : ids) {
      const std::string state = row(id).value("state", "?");
      if (state != (id == open ? "open" : "passed"))
        fail("lesson ", nn, ", open: ", open, ": ", id, " is ", state, ": ", row(id).value("message", ""));
      if (row(id).value("points", -1) != (id == open ? 0 : row(id).value("max_points", 0)))
        fail("lesson ", nn, ", open: ", open, ": points of ", id);
    }
  }

  int count_ = 0;
};

}  // namespace

}  // namespace gradus::course

int main(int argc, char** argv) {
  using namespace gradus::course;
  GradeCheck check;
  Lines numbers(argv + 1, argv + argc);
  if (numbers.empty())
    for (const std::string& name : lessons()) numbers.push_back(lesson_of(name));
  check.hostile();
  for (const std::string& nn : numbers) check.lesson(nn);
  if (check.failures() == 0) std::cout << "check of grade: every submission got the expected result\n";
  return check.failures() == 0 ? 0 : 1;
}
