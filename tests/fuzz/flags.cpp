// Flags, one per line: they are rejected as bad arguments, or give values within the bounds of their
// declarations; and the memory calculator answers for any model, batch and budget.
#include <algorithm>
#include <vector>

#include "src/core/args.h"
#include "src/train/memory_need.h"
#include "tests/fuzz/fuzz.h"

namespace gradus::fuzz {

std::string sample(Rng& rng) {
  constexpr const char* kNames[] = {"steps", "rate", "memory", "device", "json", "check", "stesp", ""};
  constexpr const char* kValues[] = {
      "1",   "0",      "1000000", "1000001", "-1",      "9223372036854775808", "1e3",  "0.5", "nan",
      "inf", "1e-320", "64MiB",   ".5GiB",   "1..5KiB", "1048576TiB",          "1e5B", "MiB", "cpu",
      "emu", "",       "=",       "0x10"};
  constexpr const char* kModels[] = {
      "gpt2",      "gpt-2x32x4", "gpt-1x8x3", "gpt-10000000x1x1", "gpt-1x9999999x1",
      "gpt-0x0x0", "bert-base",  "gpt-1x1",   "gpt-1x1x1x"};
  std::string lines;
  for (uint64_t n = rng.below(4); n > 0; --n)
    lines +=
        std::string("--") + one_of(rng, kNames) + (rng.below(8) ? "=" : "") + one_of(rng, kValues) + "\n";
  if (rng.below(60) == 0) lines += std::string("--model=") + one_of(rng, kModels) + "\n";
  return lines;
}

namespace {

struct Values {
  int64_t steps, memory;
  double rate;
  std::string device, model;
  explicit Values(Args args)
      : steps(args.integer("steps", 10, "steps", 1, 1000000)),
        memory(args.bytes("memory", 0, "a budget")),
        rate(args.number("rate", 0.1, "a rate", 0, 1)),
        device(args.choice("device", "auto", "the device", {"cpu", "emu"})),
        model(args.text("model", "", "a model")) {
    args.text("json", "", "a file");
    args.flag("check", "whether to check");
    args.done();
  }
};

void ask_calculator(const Values& values) {
  try {
    const TrainingRun run{transformer_config(values.model), values.steps, 8};
    const int64_t needed = memory_need(run).reserved;
    EXPECT_TRUE(fits(run, needed)) << "the run needs " << needed << " bytes, but does not fit into them";
    if (values.memory == 0) return;
    EXPECT_GE(largest_batch(run, values.memory), 0);
  } catch (const Error&) {  // no such model, or one that is too large
  }
}

}  // namespace
}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace gradus;
  std::vector<std::string> lines{"program"};
  for (const uint8_t* end = bytes + size; bytes < end;) {
    const uint8_t* const stop = std::find(bytes, end, '\n');
    lines.emplace_back(bytes, stop);
    bytes = stop == end ? end : stop + 1;
  }
  std::vector<char*> argv;
  for (std::string& line : lines)
    if (line != "--help" && line != "-h") argv.push_back(line.data());  // these end the program
  try {
    const fuzz::Values values(Args(int(argv.size()), argv.data(), "program", "a harness"));
    EXPECT_TRUE(values.steps >= 1 && values.steps <= 1000000) << values.steps;
    EXPECT_TRUE(values.rate >= 0 && values.rate <= 1) << values.rate;
    EXPECT_TRUE(values.memory >= 0 && values.memory <= int64_t(1) << 60) << values.memory;
    EXPECT_TRUE(values.device == "auto" || values.device == "cpu" || values.device == "emu") << values.device;
    if (!values.model.empty()) fuzz::ask_calculator(values);
  } catch (const BadArguments& e) {
    EXPECT_GT(std::strlen(e.what()), 10u) << e.what();
  }
  return 0;
}
