// The data of the page for the browser, field by field; and what the picture shows of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/io/memory_files.h"
#include "tests/folder_testing.h"
#include "tests/io/svg_testing.h"
#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

class L04_MemoryPage : public FolderTest {
 protected:
  std::string page_of(const Allocator& allocator, const std::string& title) const {
    write_memory_page(path("page.html"), allocator, title);
    return read("page.html");
  }
  Json data_of_page(const Allocator& allocator, const std::string& title) const {
    const std::string page = page_of(allocator, title), begin = "type=\"application/json\">";
    const size_t from = page.find(begin) + begin.size();
    return parse_json(page.substr(from, page.find("</script>", from) - from));
  }
};

// The blocks as [name, shape, kind, requested, bytes], the events as [action, op, block or -1, amount].
TEST_F(L04_MemoryPage, BlocksAndEventsSayWhatHappened) {
  Fixture f;
  f.allocator.set_budget(100 * kMiB);
  f.allocator.keep_history();
  const NamedRange forward{"forward", nullptr}, linear{"linear", &forward};
  f.allocator.range = &linear;
  Block* const w = f.allocator.allocate(700, Kind::Temporary, "w", {7, 25});
  f.allocator.change_kind(w, Kind::Comm);
  f.allocator.range = &forward;
  EXPECT_THROW(f.allocator.allocate(200 * kMiB, Kind::Data, "too large", {5}), OutOfMemory);
  f.allocator.range = nullptr;
  f.allocator.free(w);
  const Json data = data_of_page(f.allocator, "a </script> & \"title\"");
  EXPECT_EQ(data.at("title").get<std::string>(), "a </script> & \"title\"");
  EXPECT_EQ(
      data.at("kinds").dump(),
      R"(["weight","master","gradient","optimizer","activation","temporary","data","comm","vendor","other"])");
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
            "too large [5] 6 209715200 102760448\n");  // what the budget had left: 98 MiB
  const char* const names[] = {"alloc", "free", "kind", "segment_alloc", "segment_free", "", "", "oom"};
  for (const Json& e : data.at("events")) {
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

TEST_F(L04_MemoryPage, AChangeOfKindSaysTheNewOne) {
  Fixture f;
  f.allocator.keep_history();
  Block* const b = f.allocator.allocate(700, Kind::Weight, "b");
  for (int k = kKinds - 1; k >= 0; --k) f.allocator.change_kind(b, Kind(k));
  f.allocator.free(b);
  const Json data = data_of_page(f.allocator, "kinds");
  std::string kinds;
  for (const Json& e : data.at("events"))
    if (e[0].get<int64_t>() == int64_t(Action::ChangeKind)) kinds += e[4].dump() + " ";
  EXPECT_EQ(kinds, "9 8 7 6 5 4 3 2 1 0 ");
}

// The script reads numbers that C++ writes, and does what memory_files.h says.
TEST_F(L04_MemoryPage, TheScriptKnowsTheActionsAndTheKinds) {
  Fixture f;
  f.allocator.keep_history();
  const std::string page = page_of(f.allocator, "t");
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
    EXPECT_NE(page.find(part), std::string::npos) << "to be hovered, clicked and zoomed";
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

// Many strings, each once; the events of one block all say its number.
TEST_F(L04_MemoryPage, EachStringIsWrittenOnce) {
  Fixture f;
  f.allocator.keep_history();
  for (int i = 0; i < 5; ++i)
    f.allocator.free(f.allocator.allocate(512, Kind::Data, i % 2 ? "odd" : "even", {7}));
  const Json data = data_of_page(f.allocator, "");
  EXPECT_EQ(data.at("strings").dump(), R"(["","even","[7]","odd"])");
  EXPECT_EQ(data.at("blocks").size(), 5u);
  std::string blocks;
  for (const Json& e : data.at("events")) blocks += e[3].dump() + " ";
  EXPECT_EQ(blocks, "-1 0 0 1 1 2 2 3 3 4 4 ");
}

TEST_F(L04_MemoryPage, ThePictureShowsWhatGoesBack) {
  Fixture f;
  f.allocator.keep_history();
  f.allocator.free(f.allocator.allocate(40 * kMiB, Kind::Weight, "w"));
  f.allocator.empty_cache();
  for (int i = 0; i < 50; ++i) f.allocator.free(f.allocator.allocate(0, Kind::Other, "tiny"));
  write_memory_plot(path("a.svg"), f.allocator, "");
  const std::string line = SvgText(read("a.svg")).all("path").back()["d"];
  EXPECT_EQ(line.rfind("V387.8H672"), line.size() - 10) << "2 MiB of 40 are reserved: " << line;
}

TEST_F(L04_MemoryPage, ThePictureShowsTheLastEventToo) {
  Fixture f;
  f.allocator.keep_history();
  f.allocator.free(f.allocator.allocate(512, Kind::Data, "first"));
  Block* const last = f.allocator.allocate(kMiB, Kind::Weight, "last");
  write_memory_plot(path("a.svg"), f.allocator, "");
  const SvgText svg(read("a.svg"));
  EXPECT_EQ(svg.says("weight").size(), 1u);
  EXPECT_EQ(svg.all("path").back()["d"], "M72 80.2H672") << "2 MiB are reserved from the first event on";
  f.allocator.free(last);
}

}  // namespace
}  // namespace gradus
