// Programs as users run them: in a shell, with everything that they print.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace gradus {

struct Outcome {
  int code;            // exit code; 128 + the signal if it died of one, as a shell says it
  std::string output;  // of both streams
};

// Runs a program of the build that this test belongs to, in a shell; `before` is shell text in front of it.
inline Outcome run(const std::string& program, const std::string& args, const std::string& before = "") {
  const std::filesystem::path build =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  const std::string command = before + " '" + (build / program).string() + "' " + args + " 2>&1";
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
