// JSON: written values are read back; text that is not JSON, or larger than allowed, is rejected with a
// sentence.
#include "src/core/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/core/rng.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// The error for an object with one field whose value is `text`.
ParsedJson value_of(const std::string& text) {
  ParsedJson read;
  parse_fields("{\"a\":" + text + "}", SIZE_MAX, [&](const std::string&, ParsedJson& v) { read = v; });
  return read;
}
std::string refusal_of(const std::string& text) {
  return refusal([&] { value_of(text); });
}

TEST(L01_CoreJson, WritesInOrder) {
  Json j{{"z", {1, nullptr, true}}, {"a", "text"}, {"empty", Json::object()}, {"z2", 0.5}};
  j["a"] = "replaced";
  EXPECT_EQ(json_text(j), R"({"z":[1,null,true],"a":"replaced","empty":{},"z2":0.5})");
}

TEST(L01_CoreJson, NumbersAreExact) {
  for (const int64_t n : {int64_t(0), int64_t(-1), INT64_MAX, INT64_MIN, (int64_t(1) << 53) + 1}) {
    EXPECT_EQ(json_text(n), std::to_string(n));
    EXPECT_EQ(whole_number(value_of(json_text(n))), n);
  }
  EXPECT_EQ(json_text(1.0), "1.0");  // so that it is read back as a double
  Rng rng(3, 1);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::bit_cast<double>(rng.bits64());
    if (!std::isfinite(x)) continue;
    const ParsedJson back = value_of(json_text(x));
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
  EXPECT_EQ(value_of(json_text(all)).get<std::string>(), all);
  EXPECT_EQ(json_text("a\"b\\c\nd\x01"), R"("a\"b\\c\nd\u0001")");
  EXPECT_EQ(json_text("a\xff\xc3"), "\"a\uFFFD\uFFFD\"")
      << "bytes that are not UTF-8 cannot be written as JSON";
  EXPECT_EQ(json_text(Json{{"a\xff", 1}}), "{\"a\uFFFD\":1}");
  EXPECT_EQ(value_of(R"("\u0041\u00e4\u20ac\ud83d\ude00\/\b")").get<std::string>(),
            "A\u00e4\u20ac\U0001F600/\b");
}

TEST(L01_CoreJson, ReadsWhatOthersWrite) {
  std::string taken;
  parse_fields(
      " { \"w\" : {\"dtype\":\"F32\", \"shape\":[2,3],\"data_offsets\":[0,24]},\n"
      "\t\"x\":[ ] , \"y\":-0.5e+1, \"t\":true,\"f\":false,\"n\":null } \r\n",
      7, [&](const std::string& name, ParsedJson& v) { taken += name + "=" + json_text(v) + " "; });
  EXPECT_EQ(taken,
            R"(w={"data_offsets":[0,24],"dtype":"F32","shape":[2,3]} x=[] y=-5.0 t=true f=false n=null )");
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
                                 "1}}",
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
  EXPECT_NE(refusal_of("{\"a\":1,}").find("line 1, column 13"), std::string::npos)
      << refusal_of("{\"a\":1,}");
  EXPECT_EQ(refusal_of(std::string("1\0", 2)), "json: byte 6 is zero, which JSON does not allow");
  EXPECT_NE(refusal_of("1e999").find("number overflow"), std::string::npos) << refusal_of("1e999");
}

TEST(L01_CoreJson, RefusesASecondFieldOfOneNameInTheSameObject) {
  for (const char* text :
       {R"({"a":1,"b":2,"a":3})", R"({"a":1,"\u0061":3})", R"(1,"a":2)", R"({"b":1},"a":2)"})
    EXPECT_EQ(refusal_of(text), "json: two fields are called \"a\"") << text;
  EXPECT_EQ(refusal_of(R"({"":1,"a":true},"b":{"a":1,"b":2})"), "") << "in several objects";
}

TEST(L01_CoreJson, RefusesMoreThan64Levels) {
  const auto arrays = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(refusal_of(arrays(63)), "");
  EXPECT_EQ(refusal_of(arrays(64)), "json: more than 64 levels");
  EXPECT_EQ(refusal_of(std::string(10'000'000, '[')), "json: more than 64 levels");
}

// The fields that are taken from an object, as text.
std::string fields_of(std::string_view text, size_t most = 100) {
  std::string taken;
  const std::string why = refusal([&] {
    parse_fields(text, most,
                 [&](const std::string& name, ParsedJson& v) { taken += name + "=" + json_text(v) + " "; });
  });
  return taken + why;
}

TEST(L03_CoreJson, FieldsAreTakenOneByOneInTheirOrder) {
  EXPECT_EQ(fields_of("{}"), "");
  EXPECT_EQ(fields_of(R"({"z":[1,[2],{"x":3}]})"),
            "json: z has an object inside its value; only the whole value may be an object");
  EXPECT_EQ(fields_of(R"({"y":1,"a":{"b":{}}})"),
            "y=1 json: a has an object inside its value; only the whole value may be an object");
  EXPECT_EQ(fields_of(R"({"z":[1,[2]],"a":{"b":1,"c":[]},"":null,"y":"t"})"),
            R"(z=[1,[2]] a={"b":1,"c":[]} =null y="t" )");
  EXPECT_EQ(fields_of(R"({"z":1,"z":2})"), "z=1 json: two fields are called \"z\"");
  EXPECT_EQ(fields_of(R"({"a":{"z":1,"z":2}})"), "json: two fields are called \"z\"");
  EXPECT_TRUE(fields_of(R"({"z":1,)").starts_with("z=1 json: parse error at line 1, column 8"));
  for (const char* text : {"[]", "[{}]", "1", "\"a\"", "[1]"})
    EXPECT_EQ(fields_of(text), "json: the text is not an object") << text;
}

TEST(L14_CoreJson, NestedObjectsAreTakenWhereTheyAreAskedFor) {
  const auto nested = [](const std::string& text, size_t most = 100) {
    std::string taken;
    const auto take = [&](const std::string& name, ParsedJson& v) {
      taken += name + "=" + json_text(v) + " ";
    };
    const std::string why = refusal([&] { parse_fields(text, most, take, Objects::Anywhere); });
    return taken + why;
  };
  EXPECT_EQ(nested(R"({"a":{"b":{"c":1},"d":[{"b":2},{"b":3}]},"e":1})"),
            R"(a={"b":{"c":1},"d":[{"b":2},{"b":3}]} e=1 )");
  EXPECT_EQ(nested(R"({"a":{"b":{"c":1,"c":2}}})"), "json: two fields are called \"c\"");
  EXPECT_EQ(nested(R"({"a":{"b":{"a":1},"b":2}})"), "json: two fields are called \"b\"");
  EXPECT_EQ(nested(R"({"a":[{"c":1,"d":2}]})", 2), "json: more than 2 values in a");
  std::string deep = "1";
  for (int i = 0; i < 65; ++i) deep = "{\"a\":" + deep + "}";
  EXPECT_EQ(nested(deep), "json: more than 64 levels");
  EXPECT_EQ(nested(deep.substr(5, deep.size() - 6)), "a=" + deep.substr(10, deep.size() - 12) + " ");
}

TEST(L03_CoreJson, FieldsAndTheirValuesAreCountedUpToTheMost) {
  EXPECT_EQ(fields_of(R"({"a":1,"b":2})", 2), "a=1 b=2 ");
  EXPECT_EQ(fields_of(R"({"a":1,"b":2})", 1), "a=1 json: more than 1 fields");
  for (const char* text : {"[1,2]", "[[],2]", "[[[]]]", R"({"x":1,"y":2})", R"({"x":[3]})"}) {
    const std::string both = "{\"a\":" + std::string(text) + ",\"b\":" + text + "}";
    EXPECT_EQ(fields_of(both, 2), "a=" + std::string(text) + " b=" + text + " ");
    EXPECT_EQ(fields_of("{\"a\":" + std::string(text) + "}", 1), "json: more than 1 values in a");
  }
}

TEST(L03_CoreJson, StringsAndNumbersHaveAtMostAMebibyte) {
  const std::string most(1 << 20, '1');
  EXPECT_EQ(value_of("\"" + most + "\"").get<std::string>(), most);
  EXPECT_EQ(refusal_of("[" + std::string(5 << 20, ' ') + "1" + std::string(5 << 20, '\n') + "]"), "");
  for (const std::string& text :
       {"\"" + most + "1\"", most + "11", "\"" + most.substr(2) + "\\\"x\"", "-" + most,
        "\"" + std::string(2 << 20, ' ') + "\"", "[1, \"\\\\\", \"" + most + "1"})
    EXPECT_NE(refusal_of(text).find("a string or number of more than 1 MiB, at byte "), std::string::npos);
}

std::string brief(const ParsedJson& value) {
  std::ostringstream text;
  text << Brief{value};
  return text.str();
}
TEST(L03_CoreJson, SentencesShowTheBeginningOfAValue) {
  EXPECT_EQ(brief("x"), "\"x\"");
  EXPECT_EQ(brief(std::string(58, 'x')), '"' + std::string(58, 'x') + '"');
  EXPECT_EQ(brief(std::string(59, 'x')), '"' + std::string(59, 'x') + "...");
}

}  // namespace
}  // namespace gradus
