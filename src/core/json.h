// JSON is nlohmann-json's, written with the fields of an object in the order in which they were put there.
// Where values are made or read, include <nlohmann/json.hpp>; it is too large for a header.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace gradus {

using Json = nlohmann::ordered_json;
using ParsedJson = nlohmann::json;  // fields by name: one among 100,000 is found without looking at all

// An Error says where the text is no JSON (RFC 8259). Refused are also two fields of one name, whole numbers
// above int64, more than 64 levels and more than `most_values` values.
ParsedJson parse_json(std::string_view text, int64_t most_values = INT64_MAX);
int64_t whole_number(const ParsedJson& value);  // refuses 3.9 and 1e300
// On one line; a number reads back to the same value, and one that is not finite is null. Bytes of strings
// that are no UTF-8 become U+FFFD.
std::string json_text(const Json& value);

}  // namespace gradus
