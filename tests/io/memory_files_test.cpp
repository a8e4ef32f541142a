// The files made of a memory history: the snapshot's pickle, the page for the browser, the picture.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <map>
#include <nlohmann/json.hpp>

#include "src/io/memory_files.h"
#include "src/io/pickle.h"
#include "src/io/plot.h"
#include "tests/folder_testing.h"
#include "tests/io/pickle_testing.h"
#include "tests/io/svg_testing.h"
#include "tests/memory/allocator_fixture.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) (text += "0123456789abcdef"[uint8_t(c) >> 4]) += "0123456789abcdef"[c & 15];
  return text;
}

template <class... T>
Json list(T... items) {
  Json made = Json::array();
  (made.push_back(items), ...);
  return made;
}

// Integers at both sides of every change of their form.
Json sample() {
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
TEST(L04_Pickle, TheBytesAreThoseOfPython) {
  EXPECT_EQ(
      hex(pickle(sample())),
      "80027d2858040000006e616d65580300000077746558010000006e5d284b004bff4d00014dffff4a000001004affffffff4a"
      "ffffff7f4a000000808a0500000080008a05ffffff7fff8a05ffffffff7f8a060000000080008a0500000000808a08ffffff"
      "ffffffff7f8a080000000000000080655801000000785d28473fe000000000000047fe37e43c8800759c655805000000666c"
      "6167735d2888894e65580400000074657874"
      "5805000000c3a9e282ac752e");
}

TEST(L04_Pickle, ReadsBackAsItWas) {
  Json nested = Json::object();
  nested["empty"] = list(Json::array(), Json::object(), "");
  nested["sample"] = sample();
  nested["long"] = std::string(70'000, 'x');
  Json many = Json::array();
  for (int i = 0; i < 2500; ++i) many.push_back(i);
  nested["many"] = many;
  EXPECT_EQ(PickleReader::read(pickle(nested)).dump(), nested.dump());
}

class L04_MemoryFiles : public FolderTest {
 protected:
  void TearDown() override {
    for (Block* b : live_) f_.allocator.free(b);
  }
  SvgText plot(const std::string& title) const {
    write_memory_plot(path("plot.svg"), f_.allocator, title);
    return SvgText(read("plot.svg"));
  }
  // The layer of a kind: its upper edge, then down to the axis; and how high, in pixels, it ends.
  static const std::string& path_of(const SvgText& svg, Kind kind) {
    const std::string color = std::string("hsl(") + kHues[size_t(kind)] + ",42%)";
    for (const SvgElement& e : svg.elements)
      if (e.tag == "path" && e["fill"] == color) return e["d"];
    ADD_FAILURE() << "no layer of " << name_of(kind);
    return svg.elements[0]["d"];
  }
  static double end_of(const SvgText& svg, Kind kind) {
    const std::string& edge = path_of(svg, kind);
    const size_t axis = edge.rfind("H672V404"), before = edge.find_last_of("V ", axis - 1);
    return 404 - std::atof(&edge[before + 1]);
  }
  // Blocks of all pools and kinds, some freed, pages and segments returned, one request that fails.
  void use(bool expandable) {
    f_.allocator.set_expandable(expandable);
    live_.push_back(f_.allocator.allocate(700, Kind::Weight, "before", {175}));
    f_.allocator.keep_history();
    for (int i = 0; i < 40; ++i) {
      Block* b = f_.allocator.allocate(int64_t(1) << (i % 26), Kind(i % kKinds), i % 3 ? "kept" : "freed");
      i % 3 ? live_.push_back(b) : f_.allocator.free(b);
    }
    f_.allocator.free(f_.allocator.allocate(60 * kMiB, Kind::Temporary, "last"));
    f_.allocator.empty_cache();
    f_.allocator.change_kind(live_[1], Kind::Activation);
    EXPECT_THROW(f_.allocator.allocate(int64_t(5) << 30, Kind::Data, "too large", {5}), OutOfMemory);
  }

  Fixture f_;
  std::vector<Block*> live_;
};

int64_t at(const Json& dict, const char* key) { return dict.at(key).get<int64_t>(); }

// Block sizes sum to segment sizes, and replaying the trace gives the blocks and bytes at the end.
void expect_sound(const Json& snapshot, const Meter& meter) {
  std::map<int64_t, int64_t> in_use, replayed;
  int64_t reserved = 0, replayed_reserved = 0;
  for (const Json& segment : snapshot.at("segments")) {
    int64_t address = at(segment, "address"), active = 0, requested = 0;
    for (const Json& b : segment.at("blocks")) {
      EXPECT_EQ(at(b, "address"), address);
      address += at(b, "size");
      requested += at(b, "requested_size");
      if (b.at("state").get<std::string>() == "inactive") {
        EXPECT_EQ(at(b, "requested_size"), 0);
        continue;
      }
      active += at(b, "size");
      in_use[at(b, "address")] = at(b, "requested_size");
      EXPECT_FALSE(b.at("frames").empty());
    }
    EXPECT_EQ(address, at(segment, "address") + at(segment, "total_size"));
    EXPECT_EQ(active, at(segment, "active_size"));
    EXPECT_EQ(active, at(segment, "allocated_size"));
    EXPECT_EQ(requested, at(segment, "requested_size"));
    reserved += at(segment, "total_size");
  }
  for (const Json& e : snapshot.at("device_traces").at(0)) {
    const std::string& action = e.at("action").get<std::string>();
    const int64_t size = at(e, "size");
    if (action == "alloc") {
      EXPECT_TRUE(replayed.emplace(at(e, "addr"), size).second);
    }
    if (action == "free_completed") {
      EXPECT_EQ(replayed.erase(at(e, "addr")), 1u);
    }
    if (action == "segment_alloc" || action == "segment_map") replayed_reserved += size;
    if (action == "segment_free" || action == "segment_unmap") replayed_reserved -= size;
  }
  EXPECT_EQ(in_use, replayed);
  EXPECT_EQ(reserved, replayed_reserved);
  EXPECT_EQ(reserved, meter.reserved());
}

TEST_F(L04_MemoryFiles, TheSnapshotHasEveryBlockAndItsTraceLeadsThere) {
  use(false);
  const NamedRange step{"step", nullptr}, forward{"forward", &step};
  f_.allocator.range = &forward;
  EXPECT_THROW(f_.allocator.allocate(int64_t(5) << 30, Kind::Data, "too large", {5}), OutOfMemory);
  f_.allocator.range = nullptr;
  const fs::path path = root_ / "new" / "memory.pickle";
  write_memory_snapshot(path.string(), f_.allocator);
  const Json snapshot = PickleReader::read(read(path));
  EXPECT_EQ(snapshot.dump(), memory_snapshot(f_.allocator).dump());
  expect_sound(snapshot, f_.meter);
  const Json& last = snapshot.at("device_traces")[0].back();
  EXPECT_EQ(last.at("action").get<std::string>(), "oom");
  EXPECT_EQ(at(last, "size"), int64_t(5) << 30);
  std::vector<std::string> frames;
  for (const Json& frame : last.at("frames")) frames.push_back(frame.at("name").get<std::string>());
  EXPECT_EQ(frames, (std::vector<std::string>{"too large [5]", "forward", "step"})) << "the innermost first";
}

TEST_F(L04_MemoryFiles, TheSnapshotOfExpandableSegments) {
  use(true);
  const Json snapshot = memory_snapshot(f_.allocator);
  expect_sound(snapshot, f_.meter);
  for (const Json& segment : snapshot.at("segments")) EXPECT_TRUE(segment.at("is_expandable").get<bool>());
  EXPECT_NE(snapshot.dump().find("segment_unmap"), std::string::npos);
}

TEST_F(L04_MemoryFiles, ThePageStandsAloneAndItsDataSumUp) {
  use(false);
  for (int i = 0; i < 2; ++i) f_.allocator.free(f_.allocator.allocate(5, Kind::Other, "at one address"));
  live_.push_back(f_.allocator.allocate(99, Kind::Data, "</script><b>&", {99}));
  const fs::path path = root_ / "memory.html";
  write_memory_page(path.string(), f_.allocator, "a title");
  const std::string page = read(path), begin = "type=\"application/json\">";
  for (const char* loaded : {"http", "src=", "@import", "url(", "<b>", "@data@"})
    EXPECT_EQ(page.find(loaded), std::string::npos) << loaded;
  const size_t from = page.find(begin) + begin.size();
  const Json data = parse_json(page.substr(from, page.find("</script>", from) - from));
  EXPECT_EQ(data.at("title").get<std::string>(), "a title");
  int64_t allocated = 0;
  std::map<int64_t, int> alive;
  for (const Json& e : data.at("events")) {
    const Action action = Action(e[0].get<int64_t>());
    if (action != Action::Alloc && action != Action::Free) continue;
    const Json& block = data.at("blocks").at(size_t(e[3].get<int64_t>()));
    const int sign = action == Action::Alloc ? 1 : -1;
    allocated += sign * block[4].get<int64_t>();
    EXPECT_EQ(alive[e[3].get<int64_t>()] += sign, sign > 0) << "each block comes once and goes once";
  }
  EXPECT_EQ(allocated, f_.meter.now().allocated());
  const auto& strings = data.at("strings");
  const Json& last = data.at("blocks").back();
  EXPECT_EQ(strings[size_t(last[0].get<int64_t>())].get<std::string>(), "</script><b>&");
  EXPECT_EQ(strings[size_t(last[1].get<int64_t>())].get<std::string>(), "[99]");
  const std::vector<MemoryEvent>& history = f_.allocator.history();
  for (size_t i = 0; i < history.size(); ++i) {
    const auto& event = data.at("events").at(i);
    EXPECT_EQ(event[1].get<int64_t>(), int64_t(history[i].seconds * 1e6)) << "microseconds";
    if (history[i].action == Action::ChangeKind) {
      EXPECT_EQ(event[4].get<int64_t>(), int64_t(Kind::Activation));
    }
  }
}

// 40 MiB of one kind from the first event on, and 20 of another in the second half: each is as high as it is
// large.
TEST_F(L04_MemoryFiles, ThePictureStacksTheKinds) {
  f_.allocator.keep_history();
  live_.push_back(f_.allocator.allocate(40 * kMiB, Kind::Weight, "w"));  // events 0, 1: segment, block
  for (int i = 0; i < 49; ++i) f_.allocator.free(f_.allocator.allocate(0, Kind::Other, "tiny"));
  live_.push_back(f_.allocator.allocate(20 * kMiB, Kind::Temporary, "m"));
  f_.allocator.change_kind(live_.back(), Kind::Master);
  for (int i = 0; i < 50; ++i) f_.allocator.free(f_.allocator.allocate(0, Kind::Other, "tiny"));
  const SvgText svg = plot("two kinds");
  for (const char* text : {"two kinds", "MiB", "reserved", "weight", "master"})
    EXPECT_EQ(svg.says(text).size(), 1u) << text;
  for (const char* text : {"gradient", "data", "activation"}) EXPECT_EQ(svg.says(text).size(), 0u) << text;
  // Of the picture's end: the upper edges of both, from the bottom.
  const double weight = end_of(svg, Kind::Weight), master = end_of(svg, Kind::Master) - weight;
  EXPECT_NEAR(weight / master, 2, 0.01);
  EXPECT_GT(master, 40);
}

// A peak of one event among 20,000 is in the picture: its column reaches up to it.
TEST_F(L04_MemoryFiles, ThePictureShowsEveryPeak) {
  f_.allocator.keep_history();
  for (int i = 0; i < 10'000; ++i) {
    const int64_t bytes = i == 5000 ? 64 * kMiB : 100;
    f_.allocator.free(f_.allocator.allocate(bytes, Kind::Weight, "short"));
  }
  const SvgText svg = plot("a peak");
  const std::string& edge = path_of(svg, Kind::Weight);
  double highest = 404;
  for (size_t at = edge.find('V'); at != std::string::npos; at = edge.find('V', at + 1))
    highest = std::min(highest, std::atof(&edge[at + 1]));
  EXPECT_NEAR(404 - highest, 340 * 64 / (66 * 1.05), 0.1) << "64 MiB of the 66 reserved";
  EXPECT_NE(svg.all("path").back()["d"].find("V80.2H672"), std::string::npos) << "what is reserved stays";
}

// All kinds, always changing: the largest picture there can be is small enough for a page.
TEST_F(L04_MemoryFiles, APictureOfEverythingIsSmall) {
  f_.allocator.keep_history();
  for (int i = 0; i < 20'000; ++i) {
    live_.push_back(f_.allocator.allocate((i * 7919 % 1000 + 1) * 1000, Kind(i % kKinds), "x"));
    if (i % 3 == 2) f_.allocator.free(live_.back()), live_.pop_back();
    if (live_.size() > 50) f_.allocator.free(live_.front()), live_.erase(live_.begin());
  }
  plot("everything");
  EXPECT_LT(fs::file_size(path("plot.svg")), 100'000u);
}

TEST_F(L04_MemoryFiles, PathsThatCannotBeWrittenAreSentences) {
  use(false);
  for (const char* path : {"/dev/full", "/dev/null/x", "/proc/none/x"}) {
    const auto page = [&] { write_memory_page(path, f_.allocator, ""); };
    const auto snapshot = [&] { write_memory_snapshot(path, f_.allocator); };
    const auto picture = [&] { write_memory_plot(path, f_.allocator, ""); };
    for (const std::string& text : {refusal(page), refusal(snapshot), refusal(picture)}) {
      EXPECT_NE(text.find(path), std::string::npos) << text;
      EXPECT_TRUE(text.find("no regular file") + 1 || text.find("cannot be made") + 1) << text;
    }
  }
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(L04_MemoryFiles, AFullDiskIsASentenceAndLeavesNothing) {
  use(false);
  const std::string disk = path("disk");
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=4k") != 0) GTEST_SKIP() << "mounting needs root";
  const auto page = [&] { write_memory_page(disk + "/m.html", f_.allocator, ""); };
  const auto snapshot = [&] { write_memory_snapshot(disk + "/m.pickle", f_.allocator); };
  for (const std::string& text : {refusal(page), refusal(snapshot)})
    EXPECT_NE(text.find("No space left on device"), std::string::npos) << text;
  EXPECT_TRUE(fs::is_empty(disk));
  ASSERT_EQ(::umount(disk.c_str()), 0);
}

TEST_F(L04_MemoryFiles, WithoutAHistoryASentenceSaysWhatToDo) {
  const auto page = [&] { write_memory_page(path("m.html"), f_.allocator, ""); };
  const auto snapshot = [&] { write_memory_snapshot(path("m.pickle"), f_.allocator); };
  const auto picture = [&] { plot(""); };
  for (const std::string& text : {refusal(page), refusal(snapshot), refusal(picture)})
    EXPECT_NE(text.find("keep_history"), std::string::npos) << text;
  EXPECT_TRUE(fs::is_empty(root_));
}

}  // namespace
}  // namespace gradus
