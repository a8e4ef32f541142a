// Trace files, event by event: valid by the published format, whatever is written, and complete or absent.
#include <sys/resource.h>

#include "src/core/rng.h"
#include "src/io/trace.h"
#include "tests/folder_testing.h"
#include "tests/io/trace_checker.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Problems = std::vector<std::string>;

struct L13_TraceFile : FolderTest {
  // The checker's findings in a trace that `fill` has written.
  CheckedTrace written(const std::function<void(TraceFile&)>& fill) const {
    TraceFile file(path("trace.json"));
    fill(file);
    file.commit();
    return CheckedTrace(read("trace.json"));
  }
};

TEST_F(L13_TraceFile, SaysWhatItWasTold) {
  const CheckedTrace t = written([](TraceFile& file) {
    file.name_process(3, "three");
    file.name_track({3, 1}, "one");
    file.span({3, 1}, "outer", 1, 2, "range");
    file.span({3, 1}, "inner", 1.25, 1.5, "copy", {{"bytes", 77}}, "forward/h.2");
    file.span({3, 2}, "other", 1.5, 3, "range", {}, "alone");
    file.counters(3, "memory", 1.5, {{"weight", 10}, {"data", 0}});
    file.arrow("backward", {3, 1}, 1.25, {3, 2}, 1.5);
    file.arrow("backward", {3, 1}, 1, {3, 2}, 1.75);
  });
  EXPECT_EQ(t.problems, Problems{});
  EXPECT_EQ(t.processes.at(3), "three");
  EXPECT_EQ(t.threads.at({3, 1}), "one");
  const auto& slices = t.slices.at({3, 1});
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].name, "outer");
  EXPECT_EQ(slices[0].begin, 1'000'000'000);
  EXPECT_EQ(slices[0].end, 2'000'000'000);
  EXPECT_EQ(slices[1].name, "inner");
  EXPECT_EQ(slices[1].depth, 1u);
  EXPECT_EQ(slices[1].category, "copy");
  EXPECT_EQ(slices[1].args, Json::parse(R"({"bytes":77,"in":"forward/h.2"})"));
  EXPECT_EQ(t.slices.at({3, 2})[0].args, Json::parse(R"({"in":"alone"})"));
  EXPECT_EQ(t.counters, 1);
  ASSERT_EQ(t.arrows.size(), 2u);
  EXPECT_EQ(t.arrows[0].from.second, 1);
  EXPECT_EQ(t.arrows[0].to.second, 2);
}

// Times fall anywhere between two nanoseconds.
TEST_F(L13_TraceFile, WhatIsWithinASpanStillIsAfterRounding) {
  RecordProperty("exercise", "13.3");
  Rng rng(1, 1);
  const CheckedTrace t = written([&](TraceFile& file) {
    for (int i = 0; i < 2000; ++i) {
      const double begin = i * 1e-4 + 1e-9 * rng.uniform(), end = begin + 2e-6 * rng.uniform();
      file.span({0, 0}, "outer", begin, end, "range");
      const double middle = begin + (end - begin) * rng.uniform();
      file.span({0, 0}, "first", begin, middle, "range");
      file.span({0, 0}, "second", middle, end, "range");
    }
  });
  EXPECT_EQ(t.problems, Problems{}) << "in the file, a range ends after the range around it";
}

TEST_F(L13_TraceFile, NamesMayBeAnyText) {
  const std::string odd[] = {"a \"quoted\" \\ name", "tab\tnew\nline", std::string("\x01\x7f", 2), "größe",
                             "\xff\xfe no UTF-8"};
  const CheckedTrace t = written([&](TraceFile& file) {
    for (const std::string& name : odd) {
      file.span({0, 0}, name, 0, 1, "range", {}, name);
      file.name_process(0, name);
      file.counters(0, name, 0, {{"x", INT64_MAX}, {"y", INT64_MIN}});
    }
  });
  EXPECT_EQ(t.problems, Problems{});
  EXPECT_EQ(t.slices.at({0, 0}).size(), 5u);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(t.find(odd[i])) << odd[i];
}

TEST_F(L13_TraceFile, NothingIsAValidTrace) {
  const CheckedTrace t = written([](TraceFile&) {});
  EXPECT_EQ(t.problems, Problems{});
  EXPECT_TRUE(t.slices.empty());
}

TEST_F(L13_TraceFile, AMillionEventsAreNotKeptInMemory) {
  const auto resident = [] {
    int64_t pages = 0, all = 0;
    std::ifstream("/proc/self/statm") >> all >> pages;
    return pages * getpagesize();
  };
  TraceFile file(path("million.json"));
  const int64_t before = resident();
  for (int i = 0; i < 1'000'000; ++i) file.span({0, 0}, "linear", i * 1e-5, i * 1e-5 + 5e-6, "range");
  EXPECT_LT(resident() - before, int64_t(16) << 20);
  file.commit();
  std::ifstream in(path("million.json"));
  std::string line, last;
  int64_t lines = 0;
  while (std::getline(in, line)) ++lines, last = line;
  EXPECT_EQ(lines, 1'000'002) << "a line for each, the first and the last";
  EXPECT_EQ(last, "]}");
}

TEST_F(L13_TraceFile, WithoutCommitTheOldFileStays) {
  write("trace.json", "an earlier one");
  {
    TraceFile file(path("trace.json"));
    for (int i = 0; i < 50'000; ++i) file.span({0, 0}, "linear", i, i + 0.5, "range");
  }
  EXPECT_EQ(read("trace.json"), "an earlier one");
  EXPECT_EQ(files(), 1);
  expect_refused("cannot be written", [&] { TraceFile file(path("no/such/folder/trace.json")); });
}

TEST_F(L13_TraceFile, AFullDiskIsASentenceAndTheOldFileStays) {
  write("trace.json", "an earlier one");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{3 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string said = refusal([&] {
    TraceFile file(path("trace.json"));
    for (int i = 0; i < 100'000; ++i) file.span({0, 0}, "linear", i, i + 0.5, "range");
    file.commit();
  });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(said.find("writing failed after 3145728 bytes: File too large"), std::string::npos) << said;
  EXPECT_EQ(read("trace.json"), "an earlier one");
  EXPECT_EQ(files(), 1);
}

// The checker must be able to fail.
TEST_F(L13_TraceFile, TheCheckerFindsWhatTheFormatForbids) {
  const auto with = [](const std::string& events) {
    return CheckedTrace("{\"traceEvents\":[" + events + "]}").problems.size();
  };
  const std::string slice = R"({"name":"a","ph":"X","pid":0,"tid":0,"ts":1,"dur":2})";
  EXPECT_EQ(with(slice), 0u);
  EXPECT_EQ(CheckedTrace("{\"traceEvents\":[").problems.size(), 1u);
  for (const char* wrong :
       {R"({"name":"a","pid":0,"tid":0,"ts":1,"dur":2})", R"({"ph":"X","pid":0,"tid":0,"ts":1,"dur":2})",
        R"({"name":"a","ph":"X","tid":0,"ts":1,"dur":2})", R"({"name":"a","ph":"X","pid":0,"tid":0,"dur":2})",
        R"({"name":"a","ph":"X","pid":0,"tid":0,"ts":1})",
        R"({"name":"a","ph":"X","pid":0,"tid":0,"ts":1,"dur":-1})",
        R"({"name":"a","ph":"X","pid":0,"tid":0,"ts":null,"dur":1})",
        R"({"name":"a","ph":"Q","pid":0,"tid":0,"ts":1})",
        R"({"name":"a","ph":"C","pid":0,"tid":0,"ts":1,"args":{}})",
        R"({"name":"a","ph":"C","pid":0,"tid":0,"ts":1,"args":{"x":"1"}})",
        R"({"name":"thread_name","ph":"M","pid":0,"tid":0})"})
    EXPECT_EQ(with(wrong), 1u) << wrong;
  EXPECT_EQ(with(slice + R"(,{"name":"b","ph":"X","pid":0,"tid":0,"ts":2,"dur":1.001})"), 1u) << "sticks out";
  EXPECT_EQ(with(slice + R"(,{"name":"b","ph":"X","pid":0,"tid":1,"ts":2,"dur":1.001})"), 0u) << "elsewhere";
  EXPECT_EQ(with(slice + R"(,{"name":"b","ph":"X","pid":0,"tid":0,"ts":3,"dur":1})"), 0u) << "afterwards";
  const std::string from = R"(,{"name":"n","cat":"c","id":1,"ph":"s","pid":0,"tid":0,"ts":1})",
                    to = R"(,{"name":"n","cat":"c","id":1,"ph":"f","bp":"e","pid":0,"tid":0,"ts":3})";
  EXPECT_EQ(with(slice + from + to), 0u);
  EXPECT_EQ(with(slice + from + to + from + to), 1u) << "two of one number";
  EXPECT_EQ(with(slice + from), 1u) << "no end";
  EXPECT_EQ(with(slice + to), 1u) << "no start";
  EXPECT_EQ(with(slice + from + R"(,{"name":"n","cat":"c","id":1,"ph":"f","bp":"e","pid":0,"tid":0,"ts":4})"),
            1u)
      << "ends in no slice";
}

}  // namespace
}  // namespace gradus
