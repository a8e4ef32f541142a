// JSON values are nlohmann-json's. The fields of an object are written in the order in which they were added.
// Files that create or read values include <nlohmann/json.hpp>, which is too large for a header.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace gradus {

using Json = nlohmann::ordered_json;
using ParsedJson = nlohmann::json;  // sorted by name: fast lookup among 100,000 fields

enum class Objects : uint8_t { InFields, Anywhere };
// Parses `text`, which must be a JSON object (RFC 8259), and passes its fields to `take`, in order; none is
// kept. An Error says where the text is not JSON. Also rejected: two fields with one name, more than `most`
// fields or values in a field, objects inside a field's value (unless Objects::Anywhere), more than 64
// levels, and whole numbers that do not fit in an int64.
void parse_fields(std::string_view text, size_t most,
                  const std::function<void(const std::string& name, ParsedJson& value)>& take,
                  Objects objects = Objects::InFields);
int64_t whole_number(const ParsedJson& value);  // rejects 3.9 and 1e300
// One line. A number reads back as the same value; a number that is not finite becomes null. Bytes of strings
// that are not UTF-8 become U+FFFD.
std::string json_text(const Json& value);
struct Brief {  // the first 60 bytes of a value, for a message; made only if the message is
  const ParsedJson& value;
};
std::ostream& operator<<(std::ostream& out, const Brief& brief);

}  // namespace gradus
