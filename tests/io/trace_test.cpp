// Spans of ranks, as a file and as a picture.
#include "src/io/trace.h"

#include <nlohmann/json.hpp>

#include "src/core/json.h"
#include "tests/folder_testing.h"

namespace gradus {
namespace {

struct L17_Trace : FolderTest {};

const std::vector<Span> kSpans = {{"forward", 0, false, 5.0, 5.25},
                                  {"all_reduce of 3 fp32", 0, true, 5.25, 5.5},
                                  {"backward", 0, false, 5.25, 6.0},
                                  {"forward", 1, false, 5.0, 5.5},
                                  {"all_reduce of 3 fp32", 1, true, 5.25, 5.5}};

TEST_F(L17_Trace, IsAnEventForEachSpan) {
  write_trace(path("t.json"), kSpans);
  const Json events = Json::parse(read("t.json")).at("traceEvents");
  std::vector<Json> complete, names;
  for (const Json& e : events) (e.at("ph") == "X" ? complete : names).push_back(e);
  ASSERT_EQ(complete.size(), kSpans.size());
  for (size_t i = 0; i < kSpans.size(); ++i) {
    const Span& s = kSpans[i];
    EXPECT_EQ(complete[i].at("name"), s.name);
    EXPECT_EQ(complete[i].at("pid"), s.rank);
    EXPECT_EQ(complete[i].at("tid"), int(s.communicates));
    EXPECT_DOUBLE_EQ(complete[i].at("ts").get<double>(), s.begin * 1e6) << "microseconds";
    EXPECT_DOUBLE_EQ(complete[i].at("dur").get<double>(), (s.end - s.begin) * 1e6);
  }
  std::vector<std::string> said;
  for (const Json& e : names)
    said.push_back(std::to_string(e.at("pid").get<int>()) + " " + e.at("args").at("name").get<std::string>());
  EXPECT_EQ(said, (std::vector<std::string>{"0 rank 0", "0 compute", "0 network", "1 rank 1", "1 compute",
                                            "1 network"}));
}

struct Box {
  double x, y, width;
};
// The bars of the picture: the rectangles with a bar's height.
std::vector<Box> bars(const std::string& svg) {
  std::vector<Box> all;
  for (size_t at = svg.find("<rect x='"); at != std::string::npos; at = svg.find("<rect x='", at + 1)) {
    Box b{};
    double height = 0;
    sscanf(svg.c_str() + at, "<rect x='%lf' y='%lf' width='%lf' height='%lf'", &b.x, &b.y, &b.width, &height);
    if (height == 14) all.push_back(b);
  }
  return all;
}

TEST_F(L17_Trace, APictureHasTwoLanesForEachRank) {
  const std::vector<Box> drawn = bars(draw_timeline("title", kSpans));
  ASSERT_EQ(drawn.size(), kSpans.size());
  EXPECT_EQ(drawn[0].y, drawn[2].y) << "a rank's computation is in one lane";
  EXPECT_NE(drawn[0].y, drawn[1].y) << "its communication is in a different lane";
  EXPECT_NE(drawn[0].y, drawn[3].y) << "each rank has its own lanes";
  EXPECT_GE(drawn[0].x, 0);
  EXPECT_NEAR(drawn[0].x, drawn[3].x, 0.2) << "both begin at the left";
  EXPECT_NEAR(drawn[2].x + drawn[2].width - drawn[0].x, 4 * drawn[0].width, 6)
      << "one takes 0.25 seconds, the other one second";
  EXPECT_NEAR(drawn[1].x, drawn[2].x, 0.2);
}

TEST_F(L17_Trace, APictureBeginsWithItsFirstSpan) {
  std::vector<Span> earlier = kSpans;
  for (Span& s : earlier) s.begin -= 5, s.end -= 5;
  EXPECT_EQ(draw_timeline("title", kSpans), draw_timeline("title", earlier));
}

}  // namespace
}  // namespace gradus
