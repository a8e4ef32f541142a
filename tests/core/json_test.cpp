// JSON: what is written is read back, what is not JSON is refused with its position, and no input crashes.
#include "src/core/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "src/core/rng.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

std::string refusal_of(std::string_view text) {
  return refusal([&] { Json::parse(text); });
}

TEST(L01_CoreJson, WritesInOrder) {
  Json j = Json::object(), list = Json::array();
  list.push(1);
  list.push(Json());
  list.push(true);
  j.set("z", list);
  j.set("a", "text");
  j.set("empty", Json::object());
  j.set("z2", 0.5);
  j.set("a", "replaced");
  EXPECT_EQ(j.dump(), R"({"z":[1,null,true],"a":"replaced","empty":{},"z2":0.5})");
}

TEST(L01_CoreJson, NumbersAreExact) {
  for (const int64_t n : {int64_t(0), int64_t(-1), INT64_MAX, INT64_MIN, (int64_t(1) << 53) + 1}) {
    EXPECT_EQ(Json(n).dump(), std::to_string(n));
    EXPECT_EQ(Json::parse(Json(n).dump()).integer(), n);
  }
  EXPECT_EQ(Json(uint64_t(INT64_MAX)).integer(), INT64_MAX);
  EXPECT_THROW(Json(uint64_t(INT64_MAX) + 1), Error);
  EXPECT_EQ(Json(1.0).dump(), "1.0");  // so that it is read back as a double
  Rng rng(3, 1);
  int finite = 0;
  for (int i = 0; i < 20000; ++i) {
    const double x = std::bit_cast<double>(rng.bits64());
    if (!std::isfinite(x)) continue;
    ++finite;
    const Json back = Json::parse(Json(x).dump());
    ASSERT_EQ(std::bit_cast<uint64_t>(back.number()), std::bit_cast<uint64_t>(x)) << Json(x).dump();
    ASSERT_THROW(back.integer(), Error);
  }
  EXPECT_GT(finite, 19000);
  for (const double x : {0.0, -0.0, 5e-324, 1.7976931348623157e308, 1e15, 1e22, 0.1})
    EXPECT_EQ(std::bit_cast<uint64_t>(Json::parse(Json(x).dump()).number()), std::bit_cast<uint64_t>(x));
  for (const double x : {NAN, INFINITY, -INFINITY}) EXPECT_EQ(Json(x).dump(), "null");
}

TEST(L01_CoreJson, StringsSurvive) {
  const std::string all("\0\x01\x1f \"\\/\b\f\n\r\t\x7f \u00e4\u20ac\U0001F600", 23);
  EXPECT_EQ(Json::parse(Json(all).dump()).string(), all);
  EXPECT_EQ(Json("a\"b\\c\nd\x01").dump(), R"("a\"b\\c\nd\u0001")");
  EXPECT_EQ(Json("a\xff\xc3").dump(), R"("a\ufffd\ufffd")");  // what is not UTF-8 cannot be written as JSON
  EXPECT_EQ(Json::parse(R"("\u0041\u00e4\u20ac\ud83d\ude00\/\b")").string(), "A\u00e4\u20ac\U0001F600/\b");
}

TEST(L01_CoreJson, ReadsWhatOthersWrite) {
  const Json j = Json::parse(
      " { \"w\" : {\"dtype\":\"F32\", \"shape\":[2,3],\"data_offsets\":[0,24]},\n"
      "\t\"x\":[ ] , \"y\":-0.5e+1, \"t\":true,\"f\":false,\"n\":null } \r\n");
  EXPECT_EQ(j.fields().size(), 6u);
  EXPECT_EQ(j.fields()[0].first, "w");
  EXPECT_EQ(j.find("w")->find("shape")->items()[1].integer(), 3);
  EXPECT_EQ(j.find("w")->find("dtype")->string(), "F32");
  EXPECT_TRUE(j.find("x")->items().empty());
  EXPECT_EQ(j.find("y")->number(), -5.0);
  EXPECT_TRUE(j.find("t")->boolean());
  EXPECT_FALSE(j.find("f")->boolean());
  EXPECT_TRUE(j.find("n")->is_null());
  EXPECT_EQ(j.find("missing"), nullptr);
  EXPECT_EQ(Json::parse("3").number(), 3.0);
}

TEST(L01_CoreJson, WrongTypesAreSentences) {
  try {
    Json::parse("[1]").string();
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "json: expected a string, found an array");
  }
  EXPECT_THROW(Json(1.5).integer(), Error);
  EXPECT_THROW(Json(1).items(), Error);
  EXPECT_THROW(Json(1).find("x"), Error);
  EXPECT_THROW(Json(1).push(2), Error);
  EXPECT_THROW(Json(1).set("x", 2), Error);
}

TEST(L01_CoreJson, RefusesWithThePosition) {
  struct Case {
    std::string text, says;
  };
  for (const Case& c : {Case{"", "byte 0: expected a value"},
                        Case{"  ", "byte 2: expected a value"},
                        Case{"{\"a\":1,}", "byte 7: expected a field name in quotes"},
                        Case{"[1,]", "byte 3: expected a value"},
                        Case{"[1 2]", "byte 3: expected ',' or ']'"},
                        Case{"[1", "byte 2: expected ',' or ']'"},
                        Case{"{\"a\" 1}", "byte 5: expected ':'"},
                        Case{"{\"a\":1", "byte 6: expected ',' or '}'"},
                        Case{"{a:1}", "byte 1: expected a field name"},
                        Case{"1 2", "byte 2: more text after the value"},
                        Case{"nul", "expected a value"},
                        Case{"NaN", "expected a value"},
                        Case{"+1", "expected a value"},
                        Case{".5", "expected a value"},
                        Case{"-", "expected a value"},
                        Case{"01", "leading zero"},
                        Case{"-01", "leading zero"},
                        Case{"1.", "expected a digit"},
                        Case{"1e", "expected a digit"},
                        Case{"1e+", "expected a digit"},
                        Case{"9223372036854775808", "too large"},
                        Case{"-9223372036854775809", "too large"},
                        Case{"1e999", "too large"},
                        Case{"\"a", "byte 2: the string does not end"},
                        Case{"\"a\\", "unknown escape"},
                        Case{"\"\\x\"", "byte 2: unknown escape"},
                        Case{std::string("\"\\\0\"", 4), "unknown escape"},
                        Case{"\"\\u12g4\"", "four hexadecimal digits"},
                        Case{"\"\\u12", "four hexadecimal digits"},
                        Case{"\"\\u-123\"", "four hexadecimal digits"},
                        Case{"\"\\ud800\"", "half a surrogate pair"},
                        Case{"\"\\ud800\\u0041\"", "half a surrogate pair"},
                        Case{"\"\\udc00\"", "half a surrogate pair"},
                        Case{"\"\n\"", "byte 1: a control character"},
                        Case{"{\"a\":1,\"b\":2,\"a\":3}", "byte 16: a second field of the same name"},
                        Case{"{\"a\":1,\"\\u0061\":3}", "a second field of the same name"},
                        Case{"\xEF\xBB\xBF{}", "byte 0: expected a value"},  // byte order mark
                        Case{"// x\n1", "expected a value"}})
    EXPECT_NE(refusal_of(c.text).find(c.says), std::string::npos)
        << c.text << ": \"" << refusal_of(c.text) << "\", expected: " << c.says;
}

TEST(L01_CoreJson, RefusesMalformedUtf8) {
  for (const char* bad :
       {"\x80", "\xC0\xAF", "\xC1\x81", "\xC3", "\xC3(", "\xE0\x80\x80", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_NE(refusal_of("\"ab" + std::string(bad) + "\"").find("byte 3: malformed UTF-8"),
              std::string::npos);
    EXPECT_EQ(utf8_length(bad), 0);
  }
  EXPECT_EQ(utf8_length("\xF4\x8F\xBF\xBF"), 4);
  EXPECT_EQ(utf8_length("\xED\x9F\xBF"), 3);
  EXPECT_EQ(utf8_length(""), 0);
}

TEST(L01_CoreJson, DepthIsLimited) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(refusal_of(nested(64)), "");
  EXPECT_NE(refusal_of(nested(65)).find("more than 64 levels"), std::string::npos);
  EXPECT_NE(refusal_of(std::string(10'000'000, '[')).find("more than 64 levels"), std::string::npos);
}

TEST(L01_CoreJson, EscapesOnBothSidesOfEveryLength) {
  for (const auto& [escaped, bytes] :
       std::vector<std::pair<std::string, std::string>>{{"\\u007f", "\x7F"},
                                                        {"\\u0080", "\xC2\x80"},
                                                        {"\\u07FF", "\xDF\xBF"},
                                                        {"\\u0800", "\xE0\xA0\x80"},
                                                        {"\\ud7ff", "\xED\x9F\xBF"},
                                                        {"\\ue000", "\xEE\x80\x80"},
                                                        {"\\uffff", "\xEF\xBF\xBF"},
                                                        {"\\uD800\\uDC00", "\xF0\x90\x80\x80"},
                                                        {"\\udbff\\udfff", "\xF4\x8F\xBF\xBF"},
                                                        {"\\u0000", std::string(1, '\0')},
                                                        {"\\f\\n\\r\\t\\\"\\\\", "\f\n\r\t\"\\"}}) {
    EXPECT_EQ(Json::parse('"' + escaped + '"').string(), bytes) << escaped;
    EXPECT_EQ(Json::parse(Json(bytes).dump()).string(), bytes) << escaped;
  }
  for (const char* bad :
       {"\\ud800\\ue000", "\\ud800\\udbff", "\\udfff", "\\ud800x", "\\ud800\\n", "\\U0041", "\\'"})
    EXPECT_NE(refusal_of('"' + std::string(bad) + '"'), "") << bad;
}

TEST(L01_CoreJson, Utf8OnBothSidesOfEveryLength) {
  for (const auto& [text, length] : std::vector<std::pair<std::string, int>>{{"\x7F", 1},
                                                                             {"\xC2\x80", 2},
                                                                             {"\xDF\xBF", 2},
                                                                             {"\xE0\xA0\x80", 3},
                                                                             {"\xEE\x80\x80", 3},
                                                                             {"\xEF\xBF\xBF", 3},
                                                                             {"\xF0\x90\x80\x80", 4},
                                                                             {std::string(1, '\0'), 1},
                                                                             {"\xE0\x9F\xBF", 0},
                                                                             {"\xF0\x8F\xBF\xBF", 0},
                                                                             {"\xED\xA0\x80", 0},
                                                                             {"\xC2\xC0", 0},
                                                                             {"\xC2\x7F", 0},
                                                                             {"\xE1\x80", 0},
                                                                             {"\xF1\x80\x80", 0},
                                                                             {"\xE1\x80\x7F", 0},
                                                                             {"\xF1\x80\x80 ", 0}}) {
    EXPECT_EQ(utf8_length(text), length) << ::testing::PrintToString(text);
    if (length == 0) continue;
    EXPECT_EQ(utf8_length(text + "\xFF"), length) << "what follows does not matter";
  }
}

TEST(L01_CoreJson, NumbersOfEveryFormAndWhatIsNone) {
  EXPECT_EQ(Json::parse("-0").integer(), 0);
  EXPECT_EQ(Json::parse("9223372036854775807").integer(), INT64_MAX);
  EXPECT_EQ(Json::parse("-9223372036854775808").integer(), INT64_MIN);
  for (const auto& [text, x] : std::vector<std::pair<const char*, double>>{{"1E2", 100},
                                                                           {"1e+2", 100},
                                                                           {"25e-1", 2.5},
                                                                           {"0.125", 0.125},
                                                                           {"0e0", 0},
                                                                           {"1e308", 1e308},
                                                                           {"-2.5E0", -2.5}}) {
    EXPECT_EQ(Json::parse(text).number(), x) << text;
    EXPECT_FALSE(Json::parse(text).is_integer()) << text;
  }
  EXPECT_TRUE(std::signbit(Json::parse("-0.0").number()));
  EXPECT_EQ(Json::parse("12").number(), 12.0);
  for (const char* bad :
       {"00",       "1.e5",      "1e",    "0x1",         "1_0",   "- 1",      "--1",
        "Infinity", "-Infinity", "1f",    "True",        "tru",   "nulll",    "\v1",
        "\f1",      "1\v",       "[1]]",  "{}x",         "[,1]",  "{\"a\":}", "{\"a\":1 \"b\":2}",
        "'a'",      "{1:2}",     "[1;2]", "\"a\" \"b\"", "1e309", "-1e309"})
    EXPECT_NE(refusal_of(bad), "") << bad;
}

TEST(L01_CoreJson, FieldsKeepTheirPlaceAndTypes) {
  Json o = Json::parse(R"({"":1,"b":true,"c":{"b":2},"d":[{"b":3},{"b":4}]})");  // one name, several objects
  EXPECT_EQ(o.find("")->integer(), 1);
  EXPECT_EQ(o.find("d")->items()[1].find("b")->integer(), 4);
  EXPECT_EQ(o.find("c")->find("a"), nullptr);
  const Json near = Json::parse(R"({"ab":1,"a":2,"A":3})");  // a name is the whole name
  EXPECT_TRUE(near.find("a")->integer() == 2 && !near.find("b"));
  o.set("b", Json());
  o.set("e", uint64_t(5));
  EXPECT_EQ(o.dump(), R"({"":1,"b":null,"c":{"b":2},"d":[{"b":3},{"b":4}],"e":5})");
  EXPECT_TRUE(Json(true).is_boolean() && !Json(true).is_integer() && !Json(1).is_boolean());
  EXPECT_TRUE(Json().is_null() && !Json(0).is_null() && Json("").is_string());
  EXPECT_TRUE(Json::array().is_array() && Json::object().is_object() && !Json::array().is_object());
  for (const auto& [value, found] :
       std::vector<std::pair<Json, std::string>>{{Json(), "null"},
                                                 {true, "true or false"},
                                                 {1, "a whole number"},
                                                 {0.5, "a number"},
                                                 {"s", "a string"},
                                                 {Json::array(), "an array"},
                                                 {Json::object(), "an object"}}) {
    const bool is_object = value.is_object();
    try {
      is_object ? void(value.items()) : void(value.fields());
      ADD_FAILURE() << found;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()),
                "json: expected an " + std::string(is_object ? "array" : "object") + ", found " + found);
    }
  }
}

// Whatever the bytes, the parser returns a value that survives a round trip, or throws an Error.
TEST(L01_CoreJson, RandomMutationsNeverCrash) {
  const std::string seed =
      R"({"__metadata__":{"step":"12","note":"\u20ac \ud83d\ude00 \"q\" ä€"},"wte":{"dtype":"F32",)"
      R"("shape":[50257,768],"data_offsets":[0,154389504]},"e":[],"n":[-1.5e-3,0,true,false,null]})";
  static constexpr std::string_view kUseful = "{}[]\",:\\u0123456789eE+-.tfn \xC3\xF0\x80";
  Rng rng(11, 1);
  int accepted = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::string text = seed;
    for (uint64_t n = 1 + rng.below(4); n > 0 && !text.empty(); --n) {
      const size_t at = rng.below(text.size());
      const char c = rng.below(3) ? kUseful[rng.below(kUseful.size())] : char(rng.below(256));
      switch (rng.below(5)) {
        case 0: text[at] = c; break;
        case 1: text.insert(at, 1, c); break;
        case 2: text.erase(at, 1 + rng.below(8)); break;
        case 3: text.resize(at); break;
        default: text.insert(at, text.substr(rng.below(text.size()), rng.below(20)));
      }
    }
    const std::string exact(text.data(), text.size());
    try {
      const std::string once = Json::parse(exact).dump();
      ASSERT_EQ(Json::parse(once).dump(), once) << exact;
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 50'000);
}

}  // namespace
}  // namespace gradus
