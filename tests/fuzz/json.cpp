// Json: an accepted text stays the same when it is written and read; others are rejected with a message.

#include "src/core/json.h"

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

constexpr const char* kTexts[] = {"",
                                  "a",
                                  "\\n",
                                  "\\u0000",
                                  "\\ud83d\\ude00",
                                  "\\ud83d",
                                  "\\u00e9",
                                  "\xF0\x9F\x98\x80",
                                  "\xED\xA0\x80",
                                  "\xC3\xA9",
                                  "\xFF",
                                  "\\q",
                                  "\x01",
                                  "F32",
                                  "data_offsets"};
constexpr const char* kNumbers[] = {"0",
                                    "-0",
                                    "-1",
                                    "01",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "1.",
                                    ".5",
                                    "-0.0",
                                    "1e400",
                                    "1e-400",
                                    "4.9e-324",
                                    "1E+2",
                                    "1e16",
                                    "0.1",
                                    "1.7e308",
                                    "--1",
                                    "123456789012345678e-2"};

std::string text_of(Rng& rng) {
  std::string text = "\"";
  for (uint64_t n = rng.below(4); n > 0; --n) text += one_of(rng, kTexts);
  return text + "\"";
}

std::string value_of(Rng& rng, int depth) {
  if (depth > 0 && rng.below(3) == 0) {
    const bool object = rng.below(2) == 0;
    std::string text = object ? "{" : "[";
    for (uint64_t n = rng.below(5), i = 0; i < n; ++i) {
      if (i > 0) text += rng.below(50) ? ", " : " ";
      if (object) text += (rng.below(4) ? "\"" + std::to_string(i) + "\"" : text_of(rng)) + ":";
      text += value_of(rng, depth - 1);
    }
    return text + (object ? "}" : "]");
  }
  constexpr const char* kWords[] = {"true", "false", "null", "nul", "NaN"};
  const uint64_t kind = rng.below(8);
  return kind == 0 ? one_of(rng, kWords) : kind < 4 ? text_of(rng) : one_of(rng, kNumbers);
}

}  // namespace

std::string sample(Rng& rng) {
  if (rng.below(50) == 0) {  // many equal pieces: nesting, numbers, keys
    std::string text;
    for (uint64_t n = rng.below(40000), kind = rng.below(4); n > 0; --n)
      text += kind == 0 ? "[" : kind == 1 ? "0," : kind == 2 ? "{\"\":" : "\"" + std::to_string(n) + "\":1,";
    return (rng.below(2) ? "[" : "{") + text;
  }
  const std::string value = value_of(rng, rng.below(10) ? 4 : 70);
  return rng.below(10) ? "{" + text_of(rng) + ":" + value + "}" : value;
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto fields = [](std::string_view json) {
    gradus::ParsedJson read = gradus::ParsedJson::object();
    gradus::parse_fields(json, 10'000, [&](const std::string& name, auto& value) { read[name] = value; });
    return gradus::json_text(read);
  };
  std::string written;
  try {
    written = fields(text);
  } catch (const gradus::Error& e) {
    EXPECT_NE(std::string_view(e.what()).find("json: "), std::string_view::npos) << e.what();
    return 0;
  }
  EXPECT_EQ(fields(written), written);
  return 0;
}
