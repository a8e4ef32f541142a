// The flags of every lesson, as its main() declares them, one per line, after the number of the lesson. The
// last flag exists in no program, so each program ends before its work, with exit code 2 and a message,
// whatever the other flags are.
#include <algorithm>
#include <iostream>
#include <sstream>
#include <vector>

#include "tests/fuzz/fuzz.h"

// fuzz.mk renames the main functions and lists them.
#define X(name) int name(int argc, char** argv);
extern "C" {
GRADUS_MAINS
}
#undef X
#define X(name) name,
constexpr int (*kMains[])(int, char**) = {GRADUS_MAINS};

namespace gradus::fuzz {

std::string sample(Rng& rng) {
  constexpr const char* kNames[] = {"device", "steps", "seed",  "memory", "json",  "print",        "check",
                                    "ranks",  "comm",  "batch", "model",  "text",  "comm-timeout", "network",
                                    "budget", "size",  "load",  "save",   "start", "machine",      ""};
  constexpr const char* kValues[] = {"0",
                                     "1",
                                     "-1",
                                     "1e300",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "nan",
                                     "inf",
                                     "0.5",
                                     "64MiB",
                                     "1..5KiB",
                                     "cpu",
                                     "meta",
                                     "sim",
                                     "gpt2",
                                     "none",
                                     "example",
                                     "",
                                     "=",
                                     "/",
                                     "a/b",
                                     "nodes",
                                     "gpt-2x32x4",
                                     "A100"};
  std::string lines(1, char(rng.below(256)));
  for (uint64_t n = rng.below(5); n > 0; --n)
    lines += std::string("\n--") + one_of(rng, kNames) + (rng.below(8) ? "=" : "") + one_of(rng, kValues);
  return lines;
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  const auto lesson = kMains[bytes[0] % std::size(kMains)];
  std::vector<std::string> lines;
  std::istringstream text(std::string(bytes + 1, bytes + size));
  for (std::string line; std::getline(text, line);)
    if (line != "--help" && line != "-h") lines.push_back(line);  // these end the program
  lines.push_back("--no-such-flag");
  std::string name = "lesson";
  std::vector<char*> argv{name.data()};
  for (std::string& line : lines) argv.push_back(line.data());
  argv.push_back(nullptr);
  std::ostringstream said;
  std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
  const int code = lesson(int(argv.size()) - 1, argv.data());
  std::cerr.rdbuf(before);
  EXPECT_EQ(code, 2) << said.str();
  EXPECT_GT(said.str().size(), 10u);
  return 0;
}
