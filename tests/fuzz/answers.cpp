// Files of answers, which students write: each is judged, with a state per question, or rejected with a
// message.
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/course/predict.h"
#include "tests/fuzz/fuzz.h"

namespace gradus::fuzz {

std::string sample(Rng& rng) {
  constexpr const char* kKeys[] = {
      "03.3 weights", "03.3  weights", "03.4 bytes", "03.9 none", "student:", "#", ""};
  constexpr const char* kValues[] = {"4096", "1_000", "12 KiB", "1e308 GiB", "nan",  "-1",  "",
                                     "1e3",  "MiB",   "0x10",   "Ada",       "\xFF", "= 3", "_"};
  std::string lines;
  for (uint64_t n = rng.below(6); n > 0; --n) {
    const std::string key = one_of(rng, kKeys);
    lines += key + (key.ends_with(":") || rng.below(10) == 0 ? " " : " = ") + one_of(rng, kValues) + "\n";
  }
  if (rng.below(500) == 0) lines += std::string(rng.below(100'000), '_');
  return lines;
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace gradus::predict;
  std::ofstream("answers.txt", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes), std::streamsize(size));
  const auto quiz = [](const std::string& student) {
    const Own own(student, "03.3");
    return Quiz{"numbers",
                {{"03.3", "weights", "how many?", measured([] { return 4096.0; })},
                 {"03.4", "bytes", "how many?", measured([] { return 12 * 1024.0; }, 0.1)}}};
  };
  std::ostringstream said;
  std::streambuf *const out = std::cout.rdbuf(said.rdbuf()), *const err = std::cerr.rdbuf(said.rdbuf());
  std::string program = "predict_03", answers = "--answers=answers.txt", json = "--json=verdicts.json";
  char* argv[] = {program.data(), answers.data(), json.data(), nullptr};
  const int code = run(3, argv, "03", quiz);
  std::cout.rdbuf(out), std::cerr.rdbuf(err);
  EXPECT_TRUE(code >= 0 && code <= 2) << code;
  EXPECT_TRUE(code > 0 || said.str().find("03.4: ") != std::string::npos) << said.str();
  EXPECT_GT(said.str().size(), 10u);
  return 0;
}
