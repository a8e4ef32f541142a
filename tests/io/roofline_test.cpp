// The picture of the roofline.
#include "src/io/roofline.h"

#include <cmath>

#include "tests/io/svg_testing.h"

namespace gradus {
namespace {

std::vector<SvgElement> circles(const std::string& svg) {
  std::vector<SvgElement> found;
  for (const SvgElement& e : SvgText(svg).elements)
    if (e.tag == "circle") found.push_back(e);
  return found;
}
int64_t says(const std::string& svg, const std::string& part) {
  int64_t found = 0;
  for (const SvgElement& e : SvgText(svg).elements) found += e.text.find(part) != std::string::npos;
  return found;
}

TEST(L13_Roofline, PointsLieByTheirLogarithms) {
  const std::string svg =
      draw(Roofline{"title & more",
                    1e12,
                    1e11,
                    {{"matmul", 100, 1e11, 0.81}, {"gelu", 1, 1e10, 0.09}, {"add", 10, 1e11, 0.1}}});
  const std::vector<SvgElement> c = circles(svg);
  ASSERT_EQ(c.size(), 3u);
  EXPECT_NEAR(c[0].number("cx") - c[2].number("cx"), c[2].number("cx") - c[1].number("cx"), 0.2)
      << "1, 10, 100";
  EXPECT_GT(c[0].number("cx"), c[2].number("cx"));
  EXPECT_LT(c[0].number("cy"), c[1].number("cy")) << "faster is higher";
  EXPECT_EQ(c[0].number("cy"), c[2].number("cy"));
  EXPECT_NEAR((c[0].number("r") - 4) / (c[1].number("r") - 4), 3, 0.1) << "areas are proportional to shares";
  for (const char* text : {"title &amp; more", "1  matmul  81.0 %", "2  gelu  9.0 %", "3  add  10.0 %",
                           "1000 GFLOP/s", "100 GB/s", "FLOPs per byte"})
    EXPECT_EQ(says(svg, text), 1) << text;
}

TEST(L13_Roofline, WhatHasNoPlaceIsLeftOut) {
  const std::vector<Roofline::Point> points{{"fine", 1, 1e9, 0.5},
                                            {"none", 0, 1e9, 0.1},
                                            {"stands", 1, 0, 0.1},
                                            {"unknown", NAN, 1e9, 0.1},
                                            {"endless", 1, INFINITY, 0.1}};
  for (const double roof : {1e12, double(NAN), double(INFINITY), 0.0, -1.0}) {
    const std::string svg = draw(Roofline{"t", roof, roof, points});
    EXPECT_EQ(circles(svg).size(), 1u) << roof;
    EXPECT_EQ(says(svg, "GB/s"), roof == 1e12) << roof;
  }
  EXPECT_EQ(circles(draw(Roofline{"t", NAN, NAN, {}})).size(), 0u);
  EXPECT_EQ(circles(draw(Roofline{"t", 1e12, 1e11, {}})).size(), 0u);
}

}  // namespace
}  // namespace gradus
