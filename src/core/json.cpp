#include "src/core/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <unordered_set>

namespace gradus {

int utf8_length(std::string_view s) {
  if (s.empty()) return 0;
  const auto byte = [&](size_t i) { return i < s.size() ? uint8_t(s[i]) : uint8_t(0); };
  const uint8_t b = byte(0);
  if (b < 0x80) return 1;
  const int length = b >= 0xC2 && b < 0xE0 ? 2 : b >= 0xE0 && b < 0xF0 ? 3 : b >= 0xF0 && b < 0xF5 ? 4 : 0;
  for (int i = 1; i < length; ++i)
    if ((byte(size_t(i)) & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, and code points past U+10FFFF.
  if ((b == 0xE0 && byte(1) < 0xA0) || (b == 0xED && byte(1) > 0x9F) || (b == 0xF0 && byte(1) < 0x90) ||
      (b == 0xF4 && byte(1) > 0x8F))
    return 0;
  return length;
}

double Json::number() const {
  if (const auto* n = std::get_if<int64_t>(&value_)) return double(*n);
  return get<double>("a number");
}

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : fields())
    if (name == key) return &value;
  return nullptr;
}

const char* Json::type_name() const {
  static constexpr const char* kNames[] = {"null",     "true or false", "a whole number", "a number",
                                           "a string", "an array",      "an object"};
  return kNames[value_.index()];
}

void Json::push(Json item) {
  items();  // refuses what is not an array
  std::get<Array>(value_).push_back(std::move(item));
}

void Json::set(std::string key, Json item) {
  if (Json* old = const_cast<Json*>(find(key)))
    *old = std::move(item);
  else
    std::get<Object>(value_).emplace_back(std::move(key), std::move(item));
}

static std::string quoted(std::string_view s) {
  std::string out = "\"";
  while (!s.empty()) {
    const int length = utf8_length(s);
    const std::string_view character = s.substr(0, size_t(std::max(length, 1)));
    s.remove_prefix(character.size());
    if (length == 0)
      out += "\\ufffd";
    else if (character == "\"" || character == "\\")
      out.append("\\").append(character);
    else if (character == "\n")
      out += "\\n";
    else if (uint8_t(character[0]) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", unsigned(character[0]));
      out += code;
    } else
      out += character;
  }
  return out + '"';
}

std::string Json::dump() const {
  struct Writer {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(int64_t n) const { return std::to_string(n); }
    std::string operator()(double x) const {
      if (!std::isfinite(x)) return "null";
      char text[40];
      std::string s(text, std::to_chars(text, text + sizeof text, x).ptr);
      return s.find_first_of(".e") == std::string::npos ? s + ".0" : s;  // to be read back as a double
    }
    std::string operator()(const std::string& s) const { return quoted(s); }
    std::string operator()(const Array& a) const {
      std::string out = "[";
      for (const Json& item : a) out.append(out.size() > 1 ? "," : "").append(item.dump());
      return out + "]";
    }
    std::string operator()(const Object& o) const {
      std::string out = "{";
      for (const auto& [name, value] : o)
        out.append(out.size() > 1 ? "," : "").append(quoted(name)).append(":").append(value.dump());
      return out + "}";
    }
  };
  return std::visit(Writer{}, value_);
}

class JsonParser {
 public:
  JsonParser(std::string_view text, int64_t most_values) : text_(text), values_left_(most_values) {}

  Json whole() {
    Json value = parse_value(0);
    skip_space();
    require(at_ == text_.size(), "more text after the value");
    return value;
  }

 private:
  void require(bool ok, const char* what) const { check(ok, "json: byte ", at_, ": ", what); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\n\r", at_), text_.size()); }
  bool accept(std::string_view token) {
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  Json parse_value(int depth) {
    require(depth < 64, "more than 64 levels");
    require(values_left_-- > 0, "more values than are allowed");
    skip_space();
    if (peek() == '{') return parse_object(depth);
    if (peek() == '[') return parse_array(depth);
    if (peek() == '"') return Json(parse_string());
    if (accept("true")) return Json(true);
    if (accept("false")) return Json(false);
    if (accept("null")) return Json();
    return parse_number();
  }

  Json parse_object(int depth) {
    Json::Object fields;
    std::unordered_set<std::string> names;  // to find duplicates without comparing all pairs
    ++at_;
    skip_space();
    if (!accept("}")) {
      do {
        skip_space();
        require(peek() == '"', "expected a field name in quotes");
        std::string name = parse_string();
        require(names.insert(name).second, "a second field of the same name ends here");
        skip_space();
        require(accept(":"), "expected ':'");
        fields.emplace_back(std::move(name), parse_value(depth + 1));
        skip_space();
      } while (accept(","));
      require(accept("}"), "expected ',' or '}'");
    }
    return Json(std::move(fields));
  }

  Json parse_array(int depth) {
    Json::Array items;
    ++at_;
    skip_space();
    if (accept("]")) return Json(std::move(items));
    do {
      items.push_back(parse_value(depth + 1));
      skip_space();
    } while (accept(","));
    require(accept("]"), "expected ',' or ']'");
    return Json(std::move(items));
  }

  Json parse_number() {
    const size_t start = at_;
    accept("-");
    const size_t digits = at_;
    at_ = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    require(at_ > digits, "expected a value");
    require(at_ == digits + 1 || text_[digits] != '0', "a number has a leading zero");
    bool whole = true;
    if (accept(".")) whole = skip_digits();
    if (accept("e") || accept("E")) {
      if (!accept("+")) accept("-");
      whole = skip_digits();
    }
    const char *begin = text_.data() + start, *end = text_.data() + at_;
    int64_t n = 0;
    double x = 0;
    const std::errc error = whole ? std::from_chars(begin, end, n).ec : std::from_chars(begin, end, x).ec;
    require(error == std::errc(), "a number is too large or too small");
    return whole ? Json(n) : Json(x);
  }

  // Digits after '.' or 'e': at least one. Returns false: such a number is not whole.
  bool skip_digits() {
    const size_t start = at_;
    at_ = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    require(at_ > start, "expected a digit");
    return false;
  }

  uint32_t parse_hex4() {
    uint32_t code = 0;
    require(at_ + 4 <= text_.size(), "expected four hexadecimal digits");
    const char* begin = text_.data() + at_;
    require(std::from_chars(begin, begin + 4, code, 16).ptr == begin + 4, "expected four hexadecimal digits");
    at_ += 4;
    return code;
  }

  void append_utf8(std::string& out, uint32_t code) const {
    if (code < 0x80)
      out += char(code);
    else if (code < 0x800)
      out += {char(0xC0 | (code >> 6)), char(0x80 | (code & 63))};
    else if (code < 0x10000)
      out += {char(0xE0 | (code >> 12)), char(0x80 | ((code >> 6) & 63)), char(0x80 | (code & 63))};
    else
      out += {char(0xF0 | (code >> 18)), char(0x80 | ((code >> 12) & 63)), char(0x80 | ((code >> 6) & 63)),
              char(0x80 | (code & 63))};
  }

  void parse_escape(std::string& out) {
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (accept("u")) {
      uint32_t code = parse_hex4();
      if (code >= 0xD800 && code < 0xDC00) {  // the first half of a surrogate pair
        require(accept("\\u"), "half a surrogate pair");
        const uint32_t low = parse_hex4();
        require(low >= 0xDC00 && low < 0xE000, "half a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      }
      require(code < 0xDC00 || code >= 0xE000, "half a surrogate pair");
      return append_utf8(out, code);
    }
    const size_t which = kFrom.find(peek());
    require(at_ < text_.size() && which != std::string_view::npos, "unknown escape");
    out += kTo[which];
    ++at_;
  }

  std::string parse_string() {
    std::string out;
    for (++at_; !accept("\"");) {
      require(at_ < text_.size(), "the string does not end");
      require(static_cast<unsigned char>(peek()) >= 0x20, "a control character in a string");
      if (accept("\\")) {
        parse_escape(out);
        continue;
      }
      const int length = utf8_length(text_.substr(at_));
      require(length > 0, "malformed UTF-8");
      out += text_.substr(at_, size_t(length));
      at_ += size_t(length);
    }
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
  int64_t values_left_;
};

Json Json::parse(std::string_view text, int64_t most_values) { return JsonParser(text, most_values).whole(); }

}  // namespace gradus
