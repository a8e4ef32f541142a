// The safetensors format: the bytes that are written; a corrupt file is an Error, never a crash.
#include <sys/resource.h>

#include <cstring>

#include "src/core/timing.h"
#include "tests/io/safetensors_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

class L03_Safetensors : public SafetensorsTest {};

TEST_F(L03_Safetensors, WhatIsWrittenIsReadBack) {
  const Sample sample;
  const Metadata metadata{{"step", "12"}, {"quoted \"key\"", "line\nbreak"}};
  write_safetensors(file_, sample.entries, metadata);
  EXPECT_EQ(sample.difference(file_), "");
  const SafetensorsFile file(file_);
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.find("missing"), nullptr);
  EXPECT_EQ(files(), 1) << "a temporary file was left";
}

TEST_F(L03_Safetensors, TheBytesAreThoseOfThePublishedFormat) {
  const float w[2] = {1, -2};
  const uint8_t b[3] = {7, 8, 9};
  const double d = 0.5;
  write_safetensors(file_,
                    {{"b", DType::U8, {3}, b},
                     {"w", DType::F32, {2, 1}, w},
                     {"a", DType::F32, {0}, nullptr},
                     {"d", DType::F64, {}, &d}},
                    {{"format", "pt"}});
  // Sorted by element size, then by name; padded to 8 with spaces.
  std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},"
      "\"d\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},"
      "\"w\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[8,16]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t n = header.size();
  std::string expected(reinterpret_cast<const char*>(&n), 8);
  expected += header + std::string(6, '\0') + "\xE0\x3F" + std::string("\0\0\x80\x3F\0\0\0\xC0\7\10\11", 11);
  EXPECT_EQ(read(file_), expected);
  // The order in which the tensors are given does not matter.
  write_safetensors(file_,
                    {{"w", DType::F32, {2, 1}, w},
                     {"d", DType::F64, {}, &d},
                     {"a", DType::F32, {0}, nullptr},
                     {"b", DType::U8, {3}, b}},
                    {{"format", "pt"}});
  EXPECT_EQ(read(file_), expected);
}

TEST_F(L03_Safetensors, NoTensorsAtAll) {
  write_safetensors(file_, {});
  EXPECT_EQ(read(file_), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(SafetensorsFile(file_).tensors().empty());
}

TEST_F(L03_Safetensors, NamesThatCannotBeWrittenAreRefused) {
  const float x = 1;
  write(file_, "as it was");
  const auto refused = [&](const std::string& why, const std::vector<TensorEntry>& tensors,
                           const Metadata& metadata = {}) {
    expect_refused(why, [&] { write_safetensors(file_, tensors, metadata); });
  };
  for (const TensorEntry& second : {TensorEntry{"x", DType::F32, {}, &x}, {"x", DType::U8, {1}, &x}})
    refused("two fields are called \"x\"", {{"x", DType::F32, {}, &x}, second});
  refused("__metadata__", {{"__metadata__", DType::F32, {}, &x}});
  refused("UTF-8", {{"a\xff", DType::F32, {}, &x}});
  refused("UTF-8", {}, {{"a", "\xff"}});
  refused("more than 1 MiB", {}, {{"a", std::string(2 << 20, 'x')}});
  std::vector<TensorEntry> many(100'001);
  for (size_t i = 0; i < many.size(); ++i) many[i].name = std::to_string(i), many[i].shape = {0};
  refused("more than 100000 fields", many);
  EXPECT_EQ(read(file_), "as it was");
}

TEST_F(L03_Safetensors, HeadersThatBreakTheFormatAreRefused) {
  const auto entry = [](const std::string& name, const std::string& shape, int64_t begin, int64_t end) {
    return "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":" + shape + ",\"data_offsets\":[" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
  };
  const std::string a = entry("a", "[4]", 0, 4);
  expect_header_refused("{" + a + "," + entry("b", "[4]", 3, 7) + "}", 7, "they overlap");
  expect_header_refused("{" + a + "," + entry("b", "[4]", 0, 4) + "}", 4, "they overlap");
  expect_header_refused("{" + entry("b", "[4]", 1, 5) + "}", 5, "a hole");
  expect_header_refused("{" + a + "}", 5, "belong to no tensor");
  expect_header_refused("{}", 1, "belong to no tensor");
  expect_header_refused("{" + a + "," + a + "}", 4, "corrupt");
  expect_header_refused("{" + entry("a", "[5]", 0, 4) + "}", 4, "do not fit [5] of U8");
  expect_header_refused("{" + entry("a", "[4]", 4, 0) + "}", 4, "entry a is corrupt");
  expect_header_refused("{" + entry("a", "[4]", -4, 0) + "}", 4, "entry a is corrupt");
  expect_header_refused("{" + entry("a", "[-4]", 0, 4) + "}", 4, "negative");
  expect_header_refused("{" + entry("a", "[1,1,1,1,1,4]", 0, 4) + "}", 4, "more than 5 dimensions");
  expect_header_refused("{" + entry("a", "[4294967296,4294967296]", 0, 0) + "}", 0, "more elements than");
  expect_header_refused("{" + entry("a", "[9223372036854775807]", 0, INT64_MAX) + "}", 4,
                        "past any file's end");
  expect_header_refused("{" + entry("a", "[9223372036854775808]", 0, 4) + "}", 4, "corrupt");
  expect_header_refused("{" + entry("a", "[4.0]", 0, 4) + "}", 4, "a whole number");
  expect_header_refused("{" + entry("a", "4", 0, 4) + "}", 4, "its shape is 4");
  for (const char* number : {"4abc", "4.", "4e", "04", "+4", "0x4", "4 4", "4_"})
    expect_header_refused("{" + entry("a", std::string("[") + number + "]", 0, 4) + "}", 4,
                          "json: parse error at line 1, column ");
  expect_header_refused("{\"a\":{\"dtype\":\"U8x\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "dtype U8x");
  expect_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4abc]}}", 4,
                        "json: parse error at line 1, column 51");
  expect_header_refused("{" + a + "}abc", 4, "expected end of input");
  expect_header_refused("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
                        "dtype F8_E4M3");
  expect_header_refused("{\"a\":{\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "has no dtype");
  expect_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,4]}}", 4,
                        "has 3 numbers");
  expect_header_refused("{\"a\":[]}", 0, "it is [], not an object");
  expect_header_refused("{\"__metadata__\":{\"step\":12}}", 0, "step is 12, not a string");
  expect_header_refused("{\"__metadata__\":[]}", 0, "it is [], not an object");
  expect_header_refused("[]", 0, "begin with {");
  expect_header_refused("{", 0, "corrupt");
  expect_header_refused(" {}", 0, "begin with {");
  expect_header_refused("", 0, "begin with {");
}

TEST_F(L03_Safetensors, ErrorsNameTheTensorAndTheByte) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})",
                    hole = "{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})";
  const auto byte = [](const std::string& header, int n) { return std::to_string(8 + header.size() + n); };
  expect_header_refused(hole, 10,
                        "tensor b begins at byte " + byte(hole, 6) + ", but the one before ends at " +
                            byte(hole, 4) + " (a hole)");
  const std::string one = "{" + a + "}";
  expect_header_refused(one, 3,
                        "the tensors end at byte " + byte(one, 4) + " and the file at byte " + byte(one, 3) +
                            "; it is truncated");
  expect_header_refused(R"({"layer":{"dtype":"U8","shape":[4]}})", 4,
                        "the header's entry layer is corrupt: it has no data_offsets");
  expect_header_refused("{\"a\":x}", 0, "is corrupt: json: parse error at line 1, column 6");
  write(file_, "1234567");
  EXPECT_NE(opening().find("has 7 bytes; a safetensors file has at least 8"), std::string::npos);

  const Sample sample;
  write_safetensors(file_, sample.entries);
  const SafetensorsFile file(file_);
  uint8_t out[64];
  const auto reading = [&](const char* name, DType dtype, const Shape& shape) {
    return refusal([&] { file.read(name, dtype, shape, out); });
  };
  EXPECT_EQ(reading("missing", DType::F32, {2, 3}), file_ + ": there is no tensor missing among its 9");
  EXPECT_EQ(reading("weight", DType::I32, {2, 3}),
            file_ + ": tensor weight is fp32 [2,3], expected int32 [2,3]");
  EXPECT_EQ(reading("bias", DType::BF16, {8}), file_ + ": tensor bias is bf16 [7], expected bf16 [8]");
  const int64_t begin = file.find("weight")->begin;  // the file becomes shorter while it is open
  ASSERT_EQ(::truncate(file_.c_str(), begin + 5), 0);
  EXPECT_EQ(reading("weight", DType::F32, {2, 3}), file_ + ": reading tensor weight failed at byte " +
                                                       std::to_string(begin + 5) +
                                                       ": the file has become shorter");
}

// Other writers may produce any order of entries and keys, no padding, spaces inside, unknown keys, and
// tensors at odd offsets.
TEST_F(L03_Safetensors, TensorsStandInTheOrderOfTheirBytes) {
  put_file(
      R"({ "z" : {"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[0],"data_offsets":[3,3]},)"
      R"("d":{"data_offsets":[3,7],"note":1,"dtype":"F32","shape":[1,1]},)"
      R"("a":{"dtype":"I8","shape":[0],"data_offsets":[3,3]} } )",
      7);
  const SafetensorsFile file(file_);
  const int64_t data = int64_t(fs::file_size(file_)) - 7;
  std::string seen;
  for (const SafetensorsFile::Tensor& t : file.tensors())
    seen += t.name + " " + name_of(t.dtype) + " " + t.shape.text() + " " + std::to_string(t.begin - data) +
            " " + std::to_string(t.bytes) + ", ";
  EXPECT_EQ(seen, "z uint8 [3] 0 3, a int8 [0] 3 0, b uint8 [0] 3 0, d fp32 [1,1] 3 4, ");
  EXPECT_EQ(file.find("d"), &file.tensors()[3]);
}

// To a multiple of 8 and no further, whatever the length.
TEST_F(L03_Safetensors, TheHeaderIsPaddedWithSpaces) {
  for (size_t length = 1; length <= 16; ++length) {
    write_safetensors(file_, {{std::string(length, 'n'), DType::F32, {0}, nullptr}});
    std::string header =
        "{\"" + std::string(length, 'n') + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
    while (header.size() % 8 != 0) header += ' ';
    const std::string bytes = read(file_);
    EXPECT_EQ(bytes.substr(0, 8), std::string(1, char(header.size())) + std::string(7, '\0')) << length;
    EXPECT_EQ(bytes.substr(8), header);
  }
}

TEST_F(L03_Safetensors, HeadersUpToTheLimitsAreRead) {
  const auto repeated = [](const std::string& begin, const std::string& piece, int n) {
    std::string header = begin;
    for (int i = 0; i < n; ++i) header += (i ? ",\"" : "\"") + std::to_string(i) + "\":" + piece;
    return header;
  };
  const std::string empty = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})",
                    metadata = R"({"__metadata__":{)";
  for (const auto& [header, end] :
       {std::pair(repeated("{", empty, 100'000), "}"), {repeated(metadata, "\"\"", 100'000), "}}"}}) {
    put_file(header + end, 0);
    EXPECT_EQ(opening(), "");
    put_file(header + (header.starts_with(metadata) ? R"(,"z":"")" : R"(,"z":)" + empty) + end, 0);
    EXPECT_NE(opening().find("more than 100000 "), std::string::npos) << opening();
  }
  const uint64_t most = 100'000'000;  // mostly a hole, which is not JSON, but is read
  write(file_, std::string(reinterpret_cast<const char*>(&most), 8) + "{}");
  ASSERT_EQ(::truncate(file_.c_str(), 8 + int64_t(most)), 0);
  EXPECT_NE(opening().find("json: byte 2 is zero"), std::string::npos) << opening();
}

// Comparing each tensor with all earlier ones would take minutes.
TEST_F(L03_Safetensors, LongHeadersAreReadAndWrittenInTheTimeOfTheirLength) {
  const double begin = seconds_now();
  std::vector<TensorEntry> tensors(90'000);
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i] = {std::to_string(i), DType::U8, {1}, "x"};
  write_safetensors(file_, tensors);
  const SafetensorsFile file(file_);
  for (const TensorEntry& t : tensors) file.expect(t.name, DType::U8, {1});
  EXPECT_LT(seconds_now() - begin, 60);
}

TEST_F(L03_Safetensors, HeaderSizesThatCannotBeAreRefused) {
  for (const uint64_t n : {uint64_t(3), uint64_t(100'000'001), uint64_t(INT64_MAX), UINT64_MAX}) {
    write(file_, std::string(reinterpret_cast<const char*>(&n), 8) + "{}");
    EXPECT_NE(opening().find("bytes 0 to 7"), std::string::npos) << opening();
  }
  // Also when the file is large enough for it (a hole takes no disk).
  const uint64_t n = 100'000'001;
  write(file_, std::string(reinterpret_cast<const char*>(&n), 8) + "{}");
  ASSERT_EQ(::truncate(file_.c_str(), 100'000'009), 0);
  EXPECT_NE(opening().find("the format allows 100000000"), std::string::npos) << opening();
  file_ = root_.string();
  EXPECT_NE(opening().find("no regular file"), std::string::npos);
  file_ = path("missing");
  EXPECT_NE(opening().find("cannot be opened"), std::string::npos);
}

// The peak memory of this process, in bytes.
int64_t peak_resident() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  return int64_t(usage.ru_maxrss) * 1024;
}

TEST_F(L03_Safetensors, AHeaderOfManyValuesIsRefusedBeforeItTakesMuchMemory) {
  const uint64_t n = 98'000'000;
  std::string bytes(8 + n, '0');
  for (size_t i = 9; i < bytes.size(); i += 2) bytes[i] = ',';
  std::memcpy(bytes.data(), &n, 8);
  bytes.replace(8, 6, "{\"a\":[").replace(bytes.size() - 2, 2, "]}");
  write(file_, bytes);
  const int64_t limit = peak_resident() + int64_t(n) + (int64_t(64) << 20);
  EXPECT_NE(opening().find("more than 100000 values in a"), std::string::npos) << opening();
  EXPECT_LT(peak_resident(), limit);
}

TEST_F(L03_Safetensors, EveryCorruptedHeaderByteIsAnErrorOrChangesNothing) {
  const Sample sample;
  write_safetensors(file_, sample.entries);
  const std::string good = read(file_);
  uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  int harmless = 0, refused = 0;
  std::fstream file(file_, std::ios::binary | std::ios::in | std::ios::out);  // one byte at a time, in place
  const auto replace = [&](size_t at, char byte) { file.seekp(std::streamoff(at)).put(byte).flush(); };
  for (size_t at = 0; at < 8 + header; ++at) {
    for (const int change : {0x00, 0xFF, int{'9'}, int{'"'}, good[at] ^ 1, good[at] ^ 0x20, good[at] + 1}) {
      if (char(change) == good[at]) continue;
      replace(at, char(change));
      const std::string difference = sample.difference(file_);
      ASSERT_EQ(difference.find("WRONG BYTES"), std::string::npos)
          << "header byte " << at << " is " << change;
      ++(difference.empty() ? harmless : refused);
    }
    replace(at, good[at]);
  }
  EXPECT_EQ(read(file_), good);
  EXPECT_GT(refused, 50 * harmless) << "harmless: " << harmless;
}

TEST_F(L03_Safetensors, TruncationAtEveryLengthIsAnError) {
  const Sample sample;
  write_safetensors(file_, sample.entries);
  const std::string good = read(file_);
  for (size_t length = good.size(); length-- > 0;) {
    ASSERT_EQ(::truncate(file_.c_str(), off_t(length)), 0);
    EXPECT_NE(opening(), "") << "of " << good.size() << " bytes only " << length;
  }
  write(file_, good + "x");
  EXPECT_NE(opening(), "");
}

}  // namespace
}  // namespace gradus
