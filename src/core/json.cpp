#include "src/core/json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "kernels/check.h"

namespace gradus {

ParsedJson parse_json(std::string_view text, int64_t most_values) {
  using Event = ParsedJson::parse_event_t;
  const size_t zero = text.find('\0');  // which the library takes for the end
  check(zero == text.npos, "json: byte ", zero, " is zero; no JSON has one");
  std::vector<std::unordered_set<std::string>> names;  // of the fields, in each object that is open
  const auto look = [&](int depth, Event event, ParsedJson& parsed) {
    const bool opens = event == Event::object_start || event == Event::array_start;
    check(!opens || depth < 64, "json: more than 64 levels");
    check(!(opens || event == Event::value) || most_values-- > 0, "json: more values than are allowed");
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key)
      check(names.back().insert(parsed.get<std::string>()).second, "json: two fields are called ",
            parsed.dump());
    check(event != Event::value || !parsed.is_number_unsigned() || parsed.get<uint64_t>() <= INT64_MAX,
          "json: ", parsed.dump(), " does not fit an int64");
    return opens || event == Event::key;  // keeps nothing: it would look through all of it at each end
  };
  try {
    const ParsedJson nothing = ParsedJson::parse(text, look);
    return ParsedJson::parse(text);
  } catch (const ParsedJson::exception& e) {
    const std::string said = e.what();  // after a word in brackets
    fail("json: ", said.substr(said.find(' ') + 1));
  }
}

int64_t whole_number(const ParsedJson& value) {
  check(value.is_number_integer(), "expected a whole number, found ", json_text(value));
  return value.get<int64_t>();
}

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gradus
