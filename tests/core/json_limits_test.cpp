// JSON at its limits: how many values, how deep, what is no number, and bytes that are no UTF-8.
#include <gtest/gtest.h>

#include "src/core/json.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L03_CoreJson, ValuesAreCountedUpToTheMost) {
  const auto parse = [](const char* text, int64_t most) { return refusal([&] { Json::parse(text, most); }); };
  for (const auto& [text, values] : {std::pair("1", 1),
                                     {"[]", 1},
                                     {"[1,2]", 3},
                                     {R"({"a":1,"b":[null,{}]})", 5},
                                     {R"(["x",[true]])", 4}}) {
    EXPECT_EQ(parse(text, values), "") << text;
    EXPECT_NE(parse(text, values - 1).find("more values than are allowed"), std::string::npos) << text;
  }
  EXPECT_EQ(parse("[1,2,3]", 3), "json: byte 5: more values than are allowed");
}

TEST(L03_CoreJson, ObjectsAreLevelsToo) {
  const auto nested = [](int pairs) {  // two levels each
    std::string text = "0";
    for (int i = 0; i < pairs; ++i) text = "{\"a\":[" + text + "]}";
    return text;
  };
  const auto of_objects = [](int levels) {
    std::string text = "{}";
    for (int i = 1; i < levels; ++i) text = "{\"a\":" + text + "}";
    return text;
  };
  EXPECT_EQ(refusal([&] { Json::parse(nested(31)); }), "");
  expect_refused("more than 64 levels", [&] { Json::parse(nested(33)); });
  EXPECT_EQ(refusal([&] { Json::parse(of_objects(64)); }), "");
  expect_refused("more than 64 levels", [&] { Json::parse(of_objects(65)); });
}

TEST(L03_CoreJson, NumbersTooCloseToZeroAreRefused) {
  expect_refused("too large or too small", [] { Json::parse("1e-400"); });
  EXPECT_EQ(Json::parse("1e-300").number(), 1e-300);
  EXPECT_EQ(Json::parse("0e-400").number(), 0);
}

TEST(L03_CoreJson, NamesAreStringsLikeAnyOther) {
  expect_refused("byte 2: malformed UTF-8", [] { Json::parse("{\"\xFF\":1}"); });
  expect_refused("byte 2: a control character", [] { Json::parse("{\"\n\":1}"); });
  Json o = Json::object();
  o.set("a\"\\\n\xFF", 1);
  EXPECT_EQ(o.dump(), R"({"a\"\\\n\ufffd":1})");
  EXPECT_EQ(Json("\xE2\x82(\xC3\xA9\x80").dump(), "\"\\ufffd\\ufffd(\xC3\xA9\\ufffd\"") << "each byte alone";
  EXPECT_EQ(Json("\x1F\x7F\t/").dump(), "\"\\u001f\x7F\\u0009/\"");
}

TEST(L03_CoreJson, WhatAValueIsNotIsNamed) {
  const Json number = 1.5, whole = 2, text = "x", none, yes = true;
  EXPECT_EQ(refusal([&] { text.number(); }), "json: expected a number, found a string");
  EXPECT_EQ(refusal([&] { number.integer(); }), "json: expected a whole number, found a number");
  EXPECT_EQ(refusal([&] { whole.boolean(); }), "json: expected true or false, found a whole number");
  EXPECT_EQ(refusal([&] { yes.number(); }), "json: expected a number, found true or false");
  EXPECT_EQ(refusal([&] { none.string(); }), "json: expected a string, found null");
  EXPECT_EQ(refusal([&] { none.find("a"); }), "json: expected an object, found null");
  Json list = Json::array(), object = Json::object();
  expect_refused("expected an object, found an array", [&] { list.set("a", 1); });
  expect_refused("expected an array, found an object", [&] { object.push(1); });
  EXPECT_EQ(list.dump() + object.dump(), "[]{}") << "as they were";
  EXPECT_FALSE(number.is_string() || number.is_null() || number.is_array() || text.is_object());
  EXPECT_EQ(Json().dump() + Json(false).dump() + Json(-7).dump(), "nullfalse-7");
  expect_refused("9223372036854775808 does not fit an int64", [] { Json(uint64_t(1) << 63); });
}

}  // namespace
}  // namespace gradus
