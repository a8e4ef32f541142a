// The files made from a memory history: the page for the browser, field by field, and the picture
// (pickle_test has the snapshot).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "src/io/memory_files.h"
#include "src/io/plot.h"
#include "tests/folder_testing.h"
#include "tests/io/svg_testing.h"
#include "tests/memory/allocator_fixture.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L04_MemoryFiles : FolderTest {
  Fixture f;
  std::vector<Block*> live;
  void TearDown() override {
    for (Block* b : live) f.allocator.free(b);
  }
  void get(int64_t bytes, Kind kind, const char* name) {
    live.push_back(f.allocator.allocate(bytes, kind, name));
  }
  // Many events in which little happens.
  void pass(int events) {
    for (int i = 0; i < events; ++i) f.allocator.free(f.allocator.allocate(0, Kind::Other, "tiny"));
  }
  std::string page(const std::string& title) const {
    write_memory_page(path("page.html"), f.allocator, title);
    return read("page.html");
  }
  Json data_of_page(const std::string& title) const {
    const std::string text = page(title), begin = "type=\"application/json\">";
    const size_t from = text.find(begin) + begin.size();
    return Json::parse(text.substr(from, text.find("</script>", from) - from));
  }
  SvgText plot(const std::string& title) const {
    write_memory_plot(path("plot.svg"), f.allocator, title);
    return SvgText(read("plot.svg"));
  }
};

// The blocks as [name, shape, kind, requested, bytes], the events as [action, op, block or -1, amount].
TEST_F(L04_MemoryFiles, BlocksAndEventsSayWhatHappened) {
  f.allocator.set_budget(100 * kMiB);
  f.allocator.keep_history();
  f.ranges.begin("forward"), f.ranges.begin("linear");
  Block* const w = f.allocator.allocate(700, Kind::Temporary, "w", {7, 25});
  f.allocator.change_kind(w, Kind::Comm);
  f.ranges.end();
  EXPECT_THROW(f.allocator.allocate(200 * kMiB, Kind::Data, "too large", {5}), OutOfMemory);
  f.ranges.end();
  f.allocator.free(w);
  const Json data = data_of_page("a </script> & \"title\"");
  EXPECT_EQ(data.at("title").get<std::string>(), "a </script> & \"title\"");
  EXPECT_EQ(
      data.at("kinds").dump(),
      R"(["weight","master","gradient","optimizer","activation","temporary","data","comm","workspace","other"])");
  const auto& strings = data.at("strings");
  const auto text = [&](const Json& number) {
    return strings.at(size_t(number.get<int64_t>())).get<std::string>();
  };
  std::string blocks, events;
  for (const Json& b : data.at("blocks")) {
    blocks += text(b[0]) + " " + text(b[1]);
    for (int i = 2; i < 5; ++i) blocks += " " + b[size_t(i)].dump();
    blocks += "\n";
  }
  EXPECT_EQ(blocks,
            "w [7,25] 5 700 1024\n"
            "too large [5] 6 209715200 102760448\n");  // the rest of the budget: 98 MiB
  const char* const names[] = {"alloc", "free", "kind", "segment_alloc", "segment_free", "", "", "oom"};
  for (size_t i = 0; i < data.at("events").size(); ++i) {
    const Json& e = data.at("events")[i];
    EXPECT_EQ(e[1].get<int64_t>(), int64_t(f.allocator.history().at(i).seconds * 1e6)) << "microseconds";
    events += std::string(names[e[0].get<int64_t>()]) + " '" + text(e[2]) + "'";
    for (int i = 3; i < 5; ++i) events += " " + e[size_t(i)].dump();
    events += "\n";
  }
  EXPECT_EQ(events,
            "segment_alloc 'forward/linear' -1 2097152\n"
            "alloc 'forward/linear' 0 1024\n"
            "kind 'forward/linear' 0 7\n"
            "oom 'forward' 1 102760448\n"
            "free '' 0 1024\n");
}

TEST_F(L04_MemoryFiles, AChangeOfKindSaysTheNewOne) {
  f.allocator.keep_history();
  Block* const b = f.allocator.allocate(700, Kind::Weight, "b");
  for (int k = kKinds - 1; k >= 0; --k) f.allocator.change_kind(b, Kind(k));
  f.allocator.free(b);
  const Json data = data_of_page("kinds");
  std::string kinds;
  for (const Json& e : data.at("events"))
    if (e[0].get<int64_t>() == int64_t(Action::ChangeKind)) kinds += e[4].dump() + " ";
  EXPECT_EQ(kinds, "9 8 7 6 5 4 3 2 1 0 ");
}

// Many strings, each written once; the events of one block all have its number.
TEST_F(L04_MemoryFiles, EachStringIsWrittenOnce) {
  f.allocator.keep_history();
  for (int i = 0; i < 5; ++i)
    f.allocator.free(f.allocator.allocate(512, Kind::Data, i % 2 ? "odd" : "even", {7}));
  const Json data = data_of_page("");
  EXPECT_EQ(data.at("strings").dump(), R"(["","even","[7]","odd"])");
  EXPECT_EQ(data.at("blocks").size(), 5u);
  std::string blocks;
  for (const Json& e : data.at("events")) blocks += e[3].dump() + " ";
  EXPECT_EQ(blocks, "-1 0 0 1 1 2 2 3 3 4 4 ");
}

// The script uses the numbers that C++ writes, and does what memory_files.h says.
TEST_F(L04_MemoryFiles, TheScriptKnowsTheActionsAndTheKinds) {
  f.allocator.keep_history();
  f.allocator.free(f.get(1, "<b>"));
  const std::string page = this->page("t");
  const std::pair<const char*, Action> actions[] = {{"ALLOC", Action::Alloc},
                                                    {"FREE", Action::Free},
                                                    {"KIND", Action::ChangeKind},
                                                    {"SEG_ALLOC", Action::SegmentAlloc},
                                                    {"SEG_FREE", Action::SegmentFree},
                                                    {"SEG_MAP", Action::SegmentMap},
                                                    {"SEG_UNMAP", Action::SegmentUnmap},
                                                    {"OOM", Action::OutOfMemory}};
  for (const auto& [name, action] : actions) {
    std::ostringstream says;
    says << " " << name << " = " << int(action);
    EXPECT_NE(page.find(says.str()), std::string::npos) << says.str();
  }
  for (const char* part : {"chart.onmousemove", "chart.onclick", "addEventListener('wheel'", "OUT OF MEMORY"})
    EXPECT_NE(page.find(part), std::string::npos) << "hovering, clicking and zooming need this";
  for (const char* loaded : {"http", "src=", "@import", "url(", "<b>", "@data@"})
    EXPECT_EQ(page.find(loaded), std::string::npos) << loaded << ": the page must not load anything";
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

// The layer of a kind: its upper edge, then down to the axis; and the height, in pixels, at which it ends.
double end_of(const SvgText& svg, Kind kind) {
  const std::string color = std::string("hsl(") + kHues[size_t(kind)] + ",42%)";
  for (const SvgElement& e : svg.all("path")) {
    if (e["fill"] != color) continue;
    const std::string& edge = e["d"];
    const size_t axis = edge.rfind("H672V404"), before = edge.find_last_of("V ", axis - 1);
    return 404 - std::atof(&edge[before + 1]);
  }
  ADD_FAILURE() << "no layer of " << name_of(kind);
  return 0;
}

// 40 MiB of one kind from the first event on, and 20 MiB of a second kind in the second half: heights are
// proportional to sizes.
TEST_F(L04_MemoryFiles, ThePictureStacksTheKinds) {
  f.allocator.keep_history();
  get(40 * kMiB, Kind::Weight, "w");  // events 0, 1: segment, block
  pass(49);
  get(20 * kMiB, Kind::Temporary, "m");
  f.allocator.change_kind(live.back(), Kind::Master);
  pass(50);
  const SvgText svg = plot("two kinds");
  for (const char* text : {"two kinds", "MiB", "reserved", "weight", "master"})
    EXPECT_EQ(svg.says(text).size(), 1u) << text;
  for (const char* text : {"gradient", "data", "activation"}) EXPECT_EQ(svg.says(text).size(), 0u) << text;
  // Of the picture's end: the upper edges of both, from the bottom.
  const double weight = end_of(svg, Kind::Weight), master = end_of(svg, Kind::Master) - weight;
  EXPECT_NEAR(weight / master, 2, 0.01);
  EXPECT_GT(master, 40);
}

// A panel per history, on the same axes, with an empty gap between them. `first` leaves out what is before
// it.
TEST_F(L04_MemoryFiles, PanelsShareTheirAxes) {
  f.allocator.keep_history();
  get(40 * kMiB, Kind::Weight, "w");
  pass(10);
  const std::vector<MemoryEvent>& all = f.allocator.history();
  const MemoryPanel large{"large", all, 2}, none{"none", all, all.size()};
  f.allocator.free(live.back()), live.clear();
  f.allocator.empty_cache();
  const size_t freed = f.allocator.history().size();
  get(20 * kMiB, Kind::Weight, "w");
  pass(10);
  write_memory_plot(path("plot.svg"), {large, none, {"small", f.allocator.history(), freed + 2}}, "panels");
  const SvgText svg(read("plot.svg"));
  double left = 72;  // the vertical axis
  for (const char* name : {"large", "none", "small"}) {
    ASSERT_EQ(svg.says(name).size(), 1u) << name;
    EXPECT_GT(svg.says(name)[0].number("x"), left) << name << " is right of the panel before";
    left = svg.says(name)[0].number("x");
  }
  // At most 42 MiB are reserved, so 42 are 340 / 1.12 pixels. A panel begins with what is allocated then.
  std::string edge;
  for (const SvgElement& e : svg.all("path"))
    if (e["fill"] == std::string("hsl(") + kHues[0] + ",42%)") edge = e["d"];
  EXPECT_TRUE(edge.starts_with("M72 114.9H")) << "40 MiB: " << edge;
  EXPECT_LT(edge.find("V404H"), edge.rfind("V404H72Z")) << "the gap is empty: " << edge;
  EXPECT_NE(edge.find("V259.4H672V404H72Z"), std::string::npos) << "20 MiB: " << edge;
}

// All kinds, always changing: the largest picture there can be is small enough for a page.
TEST_F(L04_MemoryFiles, APictureOfEverythingIsSmall) {
  f.allocator.keep_history();
  for (int i = 0; i < 20'000; ++i) {
    get((i * 7919 % 1000 + 1) * 1000, Kind(i % kKinds), "x");
    if (i % 3 == 2) f.allocator.free(live.back()), live.pop_back();
    if (live.size() > 50) f.allocator.free(live.front()), live.erase(live.begin());
  }
  plot("everything");
  EXPECT_LT(fs::file_size(path("plot.svg")), 100'000u);
}

TEST_F(L04_MemoryFiles, ThePictureShowsWhatGoesBackAndTheLastEvent) {
  f.allocator.keep_history();
  f.allocator.free(f.allocator.allocate(40 * kMiB, Kind::Weight, "w"));
  f.allocator.empty_cache();
  pass(50);
  const std::string line = plot("").all("path").back()["d"];
  EXPECT_EQ(line.rfind("V387.8H672"), line.size() - 10) << "2 MiB of 40 are reserved: " << line;
  get(kMiB, Kind::Activation, "last");
  EXPECT_EQ(plot("").says("activation").size(), 1u);
}

// Each of the three files: without a history, and where it cannot be written.
TEST_F(L04_MemoryFiles, WhatCannotBeMadeIsASentence) {
  const auto expect_sentence = [&](const std::string& path, const std::string& part) {
    expect_refused(part, [&] { write_memory_page(path, f.allocator, ""); });
    expect_refused(part, [&] { write_memory_snapshot(path, f.allocator); });
    expect_refused(part, [&] { write_memory_plot(path, f.allocator, ""); });
  };
  expect_sentence(path("m"), "keep_history");
  EXPECT_TRUE(fs::is_empty(root_));
  f.allocator.keep_history();
  pass(1);
  expect_sentence("/dev/full", "/dev/full exists and is no regular file");
}

}  // namespace
}  // namespace gradus
