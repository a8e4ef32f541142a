// A small ordered JSON value: written for reports, read for the headers of safetensors files.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/check.h"

namespace gradus {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the order of insertion

  Json() = default;  // null
  Json(bool b) : value_(b) {}
  Json(int n) : value_(int64_t(n)) {}
  Json(int64_t n) : value_(n) {}
  Json(uint64_t n) : value_(int64_t(n)) { check(n <= INT64_MAX, "json: ", n, " does not fit an int64"); }
  Json(double x) : value_(x) {}  // written as null if it is not finite
  Json(const char* s) : value_(std::string(s)) {}
  Json(std::string s) : value_(std::move(s)) {}
  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }

  // Strict RFC 8259. Numbers without fraction and exponent must fit int64, others a finite double. Refuses
  // also duplicate keys, text after the value, more than 64 levels or `most_values` values, and malformed
  // UTF-8. Errors name the byte, counted from 0.
  static Json parse(std::string_view text, int64_t most_values = INT64_MAX);
  // On one line; doubles read back to the same value. Bytes of strings that are not UTF-8 become U+FFFD.
  std::string dump() const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // The value as that type; an Error names what it is instead.
  bool boolean() const { return get<bool>("true or false"); }
  int64_t integer() const { return get<int64_t>("a whole number"); }
  double number() const;  // whole numbers too
  const std::string& string() const { return get<std::string>("a string"); }
  const Array& items() const { return get<Array>("an array"); }
  const Object& fields() const { return get<Object>("an object"); }
  const Json* find(std::string_view key) const;  // nullptr: no such field

  void push(Json item);                  // to an array
  void set(std::string key, Json item);  // in an object; replaces a field of that name

 private:
  explicit Json(Array a) : value_(std::move(a)) {}
  explicit Json(Object o) : value_(std::move(o)) {}
  friend class JsonParser;
  const char* type_name() const;
  template <class T>
  const T& get(const char* expected) const {
    check(std::holds_alternative<T>(value_), "json: expected ", expected, ", found ", type_name());
    return std::get<T>(value_);
  }

  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// The length in bytes of the well-formed UTF-8 character at the start of the text (RFC 3629), or 0.
int utf8_length(std::string_view text);

}  // namespace gradus
