// Command-line flags, each declared where the program reads it: name, default, help, bounds. --help prints
// all declarations.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/check.h"

namespace gradus {

struct BadArguments : Error {  // programs then exit with status 2
  using Error::Error;
};

//   Args args(argc, argv, "03_transformer", "train a small GPT on text");
//   const int64_t steps = args.integer("steps", 3000, "training steps", 1, 1000000);
//   args.done();
// Flags are --name=value, or --name for yes/no. Every error is a BadArguments with a sentence. With --help
// all values are the defaults, and done() ends the program.
class Args {
 public:
  Args(int argc, char** argv, std::string program, std::string about);

  int64_t integer(const std::string& name, int64_t fallback, const std::string& help, int64_t least,
                  int64_t most);
  double number(const std::string& name, double fallback, const std::string& help, double least, double most);
  int64_t bytes(const std::string& name, int64_t fallback, const std::string& help);  // 4096, 64MiB, 1.5GiB
  std::string text(const std::string& name, const std::string& fallback, const std::string& help);
  // One of a few words, which the help lists; `fallback` need not be one of them.
  std::string choice(const std::string& name, const std::string& fallback, const std::string& help,
                     const std::vector<std::string>& words);
  bool flag(const std::string& name, const std::string& help);

  // After the last declaration: prints the help and exits with 0 if --help was given; rejects unknown flags.
  void done();

 private:
  struct Given {
    std::string name, value;
    bool has_value, known = false;
  };
  Given* declare(const std::string& name, const std::string& left, const std::string& help);
  const std::string* take(const std::string& name, const std::string& fallback, const std::string& help);

  std::string program_, about_, help_;
  std::vector<Given> given_;
  std::vector<std::string> declared_;
  bool wants_help_ = false;
};

}  // namespace gradus
