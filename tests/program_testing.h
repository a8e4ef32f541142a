// Runs programs as users do, in a shell, and keeps everything that they print.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace gradus {

struct Outcome {
  int code;            // exit code; 128 + the signal if a signal ended it, as in a shell
  std::string output;  // of both streams
};

// The build folder of this test.
inline std::filesystem::path build_folder() {
  std::filesystem::path tests = std::filesystem::read_symlink("/proc/self/exe");
  while (tests.filename() != "tests") tests = tests.parent_path();
  return tests.parent_path();
}

// The programs of the lessons in this tree; a tree that is handed out does not have all lessons.
inline std::vector<std::string> lessons() {
  std::vector<std::string> programs;
  for (const auto& entry : std::filesystem::directory_iterator(build_folder() / "lessons"))
    if (!entry.path().has_extension()) programs.push_back("lessons/" + entry.path().filename().string());
  return programs;
}

// Runs a program of the build folder in a shell; `before` is shell text in front of the command.
inline Outcome run(const std::string& program, const std::string& args, const std::string& before = "") {
  const std::string command = before + " '" + (build_folder() / program).string() + "' " + args + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  Outcome outcome;
  char part[4096];
  while (const size_t n = fread(part, 1, sizeof part, pipe)) outcome.output.append(part, n);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

inline void expect_refused(const Outcome& outcome, int code, const std::string& sentence) {
  EXPECT_EQ(outcome.code, code) << outcome.output;
  EXPECT_NE(outcome.output.find(sentence), std::string::npos)
      << "no \"" << sentence << "\" in: " << outcome.output;
}

}  // namespace gradus
