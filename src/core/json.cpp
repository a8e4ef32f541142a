#include "src/core/json.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "kernels/check.h"

namespace gradus {

// Rejects long strings and numbers, because the library holds several copies of one while it parses it.
static void refuse_long_words(std::string_view text) {
  for (size_t i = 0, begin = 0, in_string = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string ^= 1;
    if (text[i] == '"' || (!in_string && std::strchr(" \t\n\r,:[]{}", text[i]))) begin = i;
    if (in_string && text[i] == '\\') ++i;
    check(i - begin <= 1 << 20, "json: a string or number of more than 1 MiB, at byte ", begin);
  }
}

void parse_fields(std::string_view text, size_t most,
                  const std::function<void(const std::string&, ParsedJson&)>& take, Objects objects) {
  using Event = ParsedJson::parse_event_t;
  const size_t zero = text.find('\0');  // the library would end there
  check(zero == text.npos, "json: byte ", zero, " is zero, which JSON does not allow");
  refuse_long_words(text);
  std::unordered_set<std::string> names[64];  // per level: the field names of the open object
  std::string name;
  size_t values = 0;
  const auto look = [&](int depth, Event event, ParsedJson& parsed) {
    const bool is_object = event == Event::object_start, opens = is_object || event == Event::array_start;
    check(depth > 0 || is_object || event == Event::object_end, "json: the text is not an object");
    check(depth < 2 || !is_object || objects == Objects::Anywhere, "json: ", name,
          " has an object inside its value; only the whole value may be an object");
    check(depth < 64 || !opens, "json: more than 64 levels");
    if (is_object) names[depth] = {};
    if (event == Event::key) {
      if (depth == 1) name = parsed, values = 0;
      check(names[depth - 1].insert(parsed).second, "json: two fields are called ", Brief{parsed});
      check(names[0].size() <= most, "json: more than ", most, " fields");
      return true;
    }
    check(event != Event::value || !parsed.is_number_unsigned() || parsed.get<uint64_t>() <= INT64_MAX,
          "json: ", Brief{parsed}, " does not fit an int64");
    check(depth < 2 || !(opens || event == Event::value) || ++values <= most, "json: more than ", most,
          " values in ", name);
    if (depth != 1 || opens) return true;
    take(name, parsed);
    return false;
  };
  try {
    const ParsedJson nothing = ParsedJson::parse(text, look);
  } catch (const ParsedJson::exception& e) {
    fail("json: ", std::strchr(e.what(), ' ') + 1);  // without the library's tag in brackets
  }
}

int64_t whole_number(const ParsedJson& value) {
  check(value.is_number_integer(), "expected a whole number, found ", Brief{value});
  return value.get<int64_t>();
}

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::ostream& operator<<(std::ostream& out, const Brief& brief) {
  const std::string text = json_text(brief.value);
  return text.size() <= 60 ? out << text : out << text.substr(0, 60) << "...";
}

}  // namespace gradus
