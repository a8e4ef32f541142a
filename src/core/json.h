// JSON is nlohmann-json's, written with the fields of an object in the order in which they were put there.
// Where values are made or read, include <nlohmann/json.hpp>; it is too large for a header.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace gradus {

using Json = nlohmann::ordered_json;
using ParsedJson = nlohmann::json;  // fields by name: one among 100,000 is found without looking at all

enum class Objects : uint8_t { InFields, Anywhere };
// Gives `take` each field of the object that `text` is, in their order, and keeps none. An Error says where
// the text is no JSON (RFC 8259). Refused are also two fields of one name, more than `most` fields or values
// of one, objects deeper than in fields unless they may be anywhere, more than 64 levels and whole numbers
// above int64.
void parse_fields(std::string_view text, size_t most,
                  const std::function<void(const std::string& name, ParsedJson& value)>& take,
                  Objects objects = Objects::InFields);
int64_t whole_number(const ParsedJson& value);  // refuses 3.9 and 1e300
// On one line; a number reads back to the same value, and one that is not finite is null. Bytes of strings
// that are no UTF-8 become U+FFFD.
std::string json_text(const Json& value);
struct Brief {  // in a sentence: the first 60 bytes of its text, made only if the sentence is
  const ParsedJson& value;
};
std::ostream& operator<<(std::ostream& out, const Brief& brief);

}  // namespace gradus
