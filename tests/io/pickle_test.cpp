// Pickles: every opcode at the limits of its range, compared with bytes from Python's pickletools; and the
// dictionary that PyTorch's viewer reads, field by field.
#include "src/io/pickle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/io/memory_files.h"
#include "tests/folder_testing.h"
#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

std::string body(const Json& value) {  // without PROTO 2 and STOP
  const std::string whole = pickle(value);
  EXPECT_EQ(whole.substr(0, 2), "\x80\x02");
  EXPECT_EQ(whole.back(), '.');
  return whole.substr(2, whole.size() - 3);
}
std::string bytes(std::initializer_list<int> values) {
  std::string s;
  for (const int v : values) s += char(v);
  return s;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) (text += "0123456789abcdef"[uint8_t(c) >> 4]) += "0123456789abcdef"[c & 15];
  return text;
}

// Integers at both sides of every limit between opcodes.
Json sample() {
  const auto list = [](auto... items) {
    Json made = Json::array();
    (made.push_back(items), ...);
    return made;
  };
  Json v = Json::object();
  v["name"] = "wte";
  const int64_t two31 = int64_t(1) << 31, two39 = int64_t(1) << 39;
  v["n"] = list(0, 255, 256, 65535, 65536, -1, two31 - 1, -two31, two31, -two31 - 1, two39 - 1, two39, -two39,
                INT64_MAX, INT64_MIN);
  v["x"] = list(0.5, -1e300);
  v["flags"] = list(true, false, Json(nullptr));
  v["text"] = "\u00e9\u20ac";
  return v;
}

// Python 3.11: pickletools.optimize(pickle.dumps({"name": "wte", "n": [...], ...}, 2)).hex()
TEST(L04_PickleForms, TheBytesAreThoseOfPython) {
  EXPECT_EQ(
      hex(pickle(sample())),
      "80027d2858040000006e616d65580300000077746558010000006e5d284b004bff4d00014dffff4a000001004affffffff4a"
      "ffffff7f4a000000808a0500000080008a05ffffff7fff8a05ffffffff7f8a060000000080008a0500000000808a08ffffff"
      "ffffffff7f8a080000000000000080655801000000785d28473fe000000000000047fe37e43c8800759c655805000000666c"
      "6167735d2888894e65580400000074657874"
      "5805000000c3a9e282ac752e");
}

TEST(L04_PickleForms, WhatPythonsSampleHasNot) {
  EXPECT_EQ(body((int64_t(1) << 47) - 1), bytes({0x8a, 6, 255, 255, 255, 255, 255, 127}));
  EXPECT_EQ(body(int64_t(1) << 47), bytes({0x8a, 7, 0, 0, 0, 0, 0, 128, 0}));
  EXPECT_EQ(body(-(int64_t(1) << 47)), bytes({0x8a, 6, 0, 0, 0, 0, 0, 128}));
  EXPECT_EQ(body(-(int64_t(1) << 47) - 1), bytes({0x8a, 7, 255, 255, 255, 255, 255, 127, 255}));
  EXPECT_EQ(body(-0.1), bytes({'G', 0xBF, 0xB9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9A}));
  EXPECT_EQ(body(INFINITY), bytes({'G', 0x7F, 0xF0, 0, 0, 0, 0, 0, 0}));
}

TEST(L04_PickleForms, StringsCarryTheirLength) {
  EXPECT_EQ(body(""), bytes({'X', 0, 0, 0, 0}));
  for (const size_t n : {1u, 255u, 256u, 65535u, 65536u, 70000u}) {
    const std::string text(n, 'x');
    EXPECT_EQ(body(text), bytes({'X', int(n & 255), int(n >> 8 & 255), int(n >> 16), 0}) + text) << n;
  }
  EXPECT_EQ(body(std::string("a\0\xC3\xA9", 4)), bytes({'X', 4, 0, 0, 0, 'a', 0, 0xC3, 0xA9}));
}

TEST(L04_PickleForms, ListsComeInBatchesOf1000) {
  const auto list = [](int n) {
    Json made = Json::array();
    for (int i = 0; i < n; ++i) made.push_back(i);
    return made;
  };
  EXPECT_EQ(body(list(0)), "]");
  EXPECT_EQ(body(list(1)), bytes({']', '(', 'K', 0, 'e'}));
  EXPECT_EQ(body(Json::object()), "}(u");
  for (const int n : {999, 1000, 1001, 2000, 2001}) {
    std::string expected = "]";
    for (int i = 0; i < n; ++i) {
      if (i % 1000 == 0) expected += '(';
      expected += body(i);
      if (i % 1000 == 999 || i == n - 1) expected += 'e';
    }
    EXPECT_EQ(body(list(n)), expected) << n;
  }
}

struct L04_SnapshotFields : FolderTest {};
TEST_F(L04_SnapshotFields, EachIsWhatPyTorchsViewerReads) {
  Fixture f;
  f.allocator.set_budget(100 * kMiB);
  f.allocator.keep_history();
  Block* const small = f.allocator.allocate(700, Kind::Weight, "w", {7, 25});
  Block* const large = f.allocator.allocate(3 * kMiB, Kind::Gradient, "w.grad", {3});
  f.allocator.change_kind(small, Kind::Master);
  f.ranges.begin("step"), f.ranges.begin("forward");
  EXPECT_THROW(f.allocator.allocate(200 * kMiB, Kind::Data, "too large", {5}), OutOfMemory);
  f.ranges.end(), f.ranges.end();
  const Json snapshot = memory_snapshot(f.allocator);
  write_memory_snapshot(path("new/memory.pickle"), f.allocator);
  EXPECT_EQ(read("new/memory.pickle"), pickle(snapshot));
  const auto number = [](int64_t n) { return std::to_string(n); };
  const std::string base = number(reinterpret_cast<int64_t>(small->segment->base)),
                    rest = number(reinterpret_cast<int64_t>(small->segment->base) + 1024);
  const auto& segments = snapshot.at("segments");
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(
      segments[0].dump(),
      R"({"device":0,"address":)" + base +
          R"(,"total_size":2097152,"allocated_size":1024,"active_size":1024,)" +
          R"("requested_size":700,"stream":0,"segment_type":"small","is_expandable":false,"frames":[],)" +
          R"("blocks":[{"address":)" + base +
          R"(,"size":1024,"requested_size":700,"state":"active_allocated",)" +
          R"("frames":[{"name":"w [7,25]","filename":"master","line":0}]},{"address":)" + rest +
          R"(,"size":2096128,"requested_size":0,"state":"inactive","frames":[]}]})");
  EXPECT_EQ(segments[1].at("segment_type").get<std::string>(), "large");
  EXPECT_EQ(segments[1].at("total_size").get<int64_t>(), 20 * kMiB);
  EXPECT_EQ(segments[1].at("blocks")[0].at("frames")[0].at("filename").get<std::string>(), "gradient");
  std::vector<std::string> actions;
  const auto& trace = snapshot.at("device_traces").at(0);
  for (const Json& e : trace) actions.push_back(e.at("action").get<std::string>());
  EXPECT_EQ(actions, (std::vector<std::string>{"segment_alloc", "alloc", "segment_alloc", "alloc", "oom"}));
  EXPECT_EQ(trace[1].dump(), R"({"action":"alloc","addr":)" + base + R"(,"size":700,"stream":0,"time_us":)" +
                                 number(int64_t(f.allocator.history()[1].seconds * 1e6)) +
                                 R"(,"frames":[{"name":"w [7,25]","filename":"weight","line":0}]})");
  EXPECT_EQ(trace[0].at("size").get<int64_t>(), 2 * kMiB);
  EXPECT_EQ(trace[0].at("frames").dump(), "[]") << "a segment belongs to no operation";
  EXPECT_EQ(trace[1].at("addr").get<int64_t>(), reinterpret_cast<int64_t>(small->segment->base));
  EXPECT_EQ(trace[1].at("frames")[0].at("filename").get<std::string>(), "weight") << "the kind at that time";
  EXPECT_EQ(trace[4].at("device_free").get<int64_t>(), (100 - 22) * kMiB);
  EXPECT_EQ(trace[4].at("size").get<int64_t>(), 200 * kMiB);
  EXPECT_EQ(trace[4].at("frames").dump(),
            R"([{"name":"too large [5]","filename":"data","line":0},)"
            R"({"name":"forward","filename":"op","line":0},{"name":"step","filename":"op","line":0}])")
      << "the innermost range first";
  f.allocator.free(small);
  f.allocator.free(large);
  const Json at_the_end = memory_snapshot(f.allocator);
  for (const Json& segment : at_the_end.at("segments"))
    EXPECT_EQ(segment.at("blocks").at(0).at("requested_size").get<int64_t>(), 0) << "free";
  const auto& after = at_the_end.at("device_traces").at(0);
  ASSERT_EQ(after.size(), 9u);
  EXPECT_EQ(after[5].at("action").get<std::string>(), "free_requested");
  EXPECT_EQ(after[6].at("action").get<std::string>(), "free_completed");
  EXPECT_EQ(after[6].at("size").get<int64_t>(), 700);
  EXPECT_EQ(after[8].at("addr").get<int64_t>(), after[3].at("addr").get<int64_t>());
}

// A segment with a hole has two parts, each with its own address and blocks.
TEST(L05_SnapshotFields, AnExpandableSegmentIsItsMappedStretches) {
  constexpr int64_t kPage = 20 * kMiB;
  Fixture f;
  f.allocator.set_expandable(true);
  f.allocator.keep_history();
  f.ranges.begin("forward"), f.ranges.begin("linear");
  Block *a = f.get(kPage, "a"), *gone = f.get(2 * kPage, "gone"), *b = f.get(kPage - 512, "b"),
        *small = f.get(1);
  f.allocator.free(gone);
  f.allocator.empty_cache();
  const Json snapshot = memory_snapshot(f.allocator);
  std::ostringstream seen;
  for (const Json& s : snapshot.at("segments")) {
    EXPECT_TRUE(s.at("is_expandable").get<bool>());
    const std::string& type = s.at("segment_type").get<std::string>();
    const Block* const first = type == "small" ? small : a;
    seen << type << " " << s.at("address").get<int64_t>() - reinterpret_cast<int64_t>(first->segment->base);
    for (const char* key : {"total_size", "allocated_size", "requested_size"})
      seen << " " << s.at(key).get<int64_t>();
    seen << " " << s.at("blocks").size() << "\n";
  }
  EXPECT_EQ(seen.str(),
            "large 0 20971520 20971520 20971520 1\n"
            "large 62914560 20971520 20971008 20971008 2\n"
            "small 0 2097152 512 1 2\n");
  const auto& trace = snapshot.at("device_traces").at(0);
  EXPECT_EQ(trace[0].at("action").get<std::string>(), "segment_map");
  EXPECT_EQ(trace.back().at("action").get<std::string>(), "segment_unmap");
  EXPECT_EQ(trace.back().at("size").get<int64_t>(), 2 * kPage);
  EXPECT_EQ(
      trace[1].at("frames").dump(),
      R"([{"name":"a [20971520]","filename":"other","line":0},{"name":"linear","filename":"op","line":0},)"
      R"({"name":"forward","filename":"op","line":0}])");
  for (Block* block : {a, b, small}) f.allocator.free(block);
}

}  // namespace
}  // namespace gradus
