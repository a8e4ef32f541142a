// JSON: what is written is read back, and what is no JSON, or more than is allowed, is refused by a sentence.
#include "src/core/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/core/rng.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

std::string refusal_of(std::string_view text, int64_t most = INT64_MAX) {
  return refusal([&] { parse_json(text, most); });
}

TEST(L01_CoreJson, WritesInOrder) {
  Json j{{"z", {1, nullptr, true}}, {"a", "text"}, {"empty", Json::object()}, {"z2", 0.5}};
  j["a"] = "replaced";
  EXPECT_EQ(json_text(j), R"({"z":[1,null,true],"a":"replaced","empty":{},"z2":0.5})");
}

TEST(L01_CoreJson, NumbersAreExact) {
  for (const int64_t n : {int64_t(0), int64_t(-1), INT64_MAX, INT64_MIN, (int64_t(1) << 53) + 1}) {
    EXPECT_EQ(json_text(n), std::to_string(n));
    EXPECT_TRUE(parse_json(json_text(n)).is_number_integer());
    EXPECT_EQ(parse_json(json_text(n)).get<int64_t>(), n);
  }
  EXPECT_EQ(json_text(1.0), "1.0");  // so that it is read back as a double
  Rng rng(3, 1);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::bit_cast<double>(rng.bits64());
    if (!std::isfinite(x)) continue;
    const Json back = parse_json(json_text(x));
    ASSERT_EQ(std::bit_cast<uint64_t>(back.get<double>()), std::bit_cast<uint64_t>(x)) << json_text(x);
    ASSERT_FALSE(back.is_number_integer());
  }
  for (const double x : {NAN, INFINITY, -INFINITY}) EXPECT_EQ(json_text(x), "null");
  EXPECT_NE(refusal_of("9223372036854775808").find("does not fit an int64"), std::string::npos);
  EXPECT_NE(refusal_of("[18446744073709551615]").find("18446744073709551615 does not fit"),
            std::string::npos);
}

TEST(L01_CoreJson, StringsSurvive) {
  const std::string all("\0\x01\x1f \"\\/\b\f\n\r\t\x7f \u00e4\u20ac\U0001F600", 23);
  EXPECT_EQ(parse_json(json_text(all)).get<std::string>(), all);
  EXPECT_EQ(json_text("a\"b\\c\nd\x01"), R"("a\"b\\c\nd\u0001")");
  EXPECT_EQ(json_text("a\xff\xc3"), "\"a\uFFFD\uFFFD\"") << "what is not UTF-8 cannot be written as JSON";
  EXPECT_EQ(json_text(Json{{"a\xff", 1}}), "{\"a\uFFFD\":1}");
  EXPECT_EQ(parse_json(R"("\u0041\u00e4\u20ac\ud83d\ude00\/\b")").get<std::string>(),
            "A\u00e4\u20ac\U0001F600/\b");
}

TEST(L01_CoreJson, ReadsWhatOthersWrite) {
  const Json j = parse_json(
      " { \"w\" : {\"dtype\":\"F32\", \"shape\":[2,3],\"data_offsets\":[0,24]},\n"
      "\t\"x\":[ ] , \"y\":-0.5e+1, \"t\":true,\"f\":false,\"n\":null } \r\n");
  EXPECT_EQ(json_text(j),
            R"({"f":false,"n":null,"t":true,"w":{"data_offsets":[0,24],"dtype":"F32","shape":[2,3]},"x":[],)"
            R"("y":-5.0})");
}

TEST(L01_CoreJson, RefusesWhatIsNoJsonAndSaysWhere) {
  for (const std::string text : {"",
                                 "  ",
                                 "{\"a\":1,}",
                                 "[1,]",
                                 "[1 2]",
                                 "[1",
                                 "{\"a\" 1}",
                                 "{a:1}",
                                 "1 2",
                                 "nul",
                                 "NaN",
                                 "+1",
                                 ".5",
                                 "-",
                                 "01",
                                 "1.",
                                 "1e",
                                 "\"a",
                                 "\"\\x\"",
                                 "\"\\u12g4\"",
                                 "\"\\ud800\"",
                                 "\"\n\"",
                                 "// x\n1",
                                 "\"ab\x80\"",
                                 "\"\xED\xA0\x80\"",
                                 "\"\xF4\x90\x80\x80\"",
                                 "'a'",
                                 "[1;2]",
                                 "{1:2}"})
    EXPECT_TRUE(refusal_of(text).starts_with("json: parse error at line "))
        << text << ": " << refusal_of(text);
  EXPECT_NE(refusal_of("{\"a\":1,}").find("line 1, column 8"), std::string::npos) << refusal_of("{\"a\":1,}");
  EXPECT_EQ(refusal_of(std::string_view("{}\0", 3)), "json: byte 2 is zero; no JSON has one");
  EXPECT_NE(refusal_of("1e999").find("number overflow"), std::string::npos) << refusal_of("1e999");
}

TEST(L01_CoreJson, RefusesASecondFieldOfOneNameInTheSameObject) {
  for (const char* text :
       {R"({"a":1,"b":2,"a":3})", R"({"a":1,"\u0061":3})", R"([{"x":{"a":{"a":1},"a":2}}])"})
    EXPECT_EQ(refusal_of(text), "json: two fields are called \"a\"") << text;
  EXPECT_EQ(refusal_of(R"({"":1,"b":true,"c":{"b":2},"d":[{"b":3},{"b":4}]})"), "") << "in several objects";
}

TEST(L01_CoreJson, RefusesMoreThan64Levels) {
  const auto arrays = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  const auto objects = [](int n) {
    std::string text = "{}";
    for (int i = 1; i < n; ++i) text = "{\"a\":" + text + "}";
    return text;
  };
  EXPECT_EQ(refusal_of(arrays(64)), "");
  EXPECT_EQ(refusal_of(arrays(65)), "json: more than 64 levels");
  EXPECT_EQ(refusal_of(objects(64)), "");
  EXPECT_EQ(refusal_of(objects(65)), "json: more than 64 levels");
  EXPECT_EQ(refusal_of(std::string(10'000'000, '[')), "json: more than 64 levels");
}

TEST(L03_CoreJson, ValuesAreCountedUpToTheMost) {
  for (const auto& [text, values] : {std::pair("1", 1),
                                     {"[]", 1},
                                     {"[1,2]", 3},
                                     {R"({"a":1,"b":[null,{}]})", 5},
                                     {R"(["x",[true]])", 4}}) {
    EXPECT_EQ(refusal_of(text, values), "") << text;
    EXPECT_EQ(refusal_of(text, values - 1), "json: more values than are allowed") << text;
  }
}

}  // namespace
}  // namespace gradus
