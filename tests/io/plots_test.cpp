// The content of plots: their words and numbers, and where things are drawn, read back from the SVG.
#include "src/io/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "kernels/check.h"
#include "tests/io/svg_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// The frame of plots with two axes, in pixels.
constexpr double kLeft = 72, kRight = 672, kBottom = 404;
constexpr const char *kFirst = "hsl(212,62%,42%)", *kSecond = "hsl(28,80%,42%)", *kThird = "hsl(135,52%,42%)",
                     *kInk = "#28282d";

std::vector<SvgElement> of_color(const SvgText& svg, const char* tag, const std::string& color) {
  std::vector<SvgElement> found;
  for (const SvgElement& e : svg.all(tag))
    if (e["stroke"] == color || e["fill"] == color) found.push_back(e);
  return found;
}

TEST(L03_Plots, ALinePlotHasItsWordsItsNumbersAndEachCurveItsColor) {
  const SvgText svg(draw(LinePlot{"two runs",
                                  "step",
                                  "nats",
                                  {{"training", {0, 10}, {0, 10}}, {"held out", {0, 10}, {10, 0}}},
                                  {{"floor", 2.5}}}));
  for (const char* text : {"two runs", "step", "nats"}) EXPECT_EQ(svg.says(text).size(), 1u) << text;
  // From 0 to 10 along x, from 0 to 10.5 along y, with numbers at every second unit.
  for (int i = 0; i <= 10; ++i) {
    const std::vector<SvgElement> numbers = svg.says(std::to_string(i));
    ASSERT_EQ(numbers.size(), i % 2 ? 0u : 2u) << i;
    if (i % 2) continue;
    EXPECT_NEAR(numbers[0].number("x"), kLeft + 60 * i, 0.1);
    EXPECT_EQ(numbers[0]["text-anchor"], "middle");
    EXPECT_NEAR(numbers[1].number("y") - 4, kBottom - 340 * i / 10.5, 0.1);
    EXPECT_EQ(numbers[1]["text-anchor"], "end");
  }
  EXPECT_EQ(of_color(svg, "path", kFirst).at(0)["d"], "M72 404L672 80.2");
  EXPECT_EQ(of_color(svg, "path", kSecond).at(0)["d"], "M72 80.2L672 404");
  const std::vector<SvgElement> floor = of_color(svg, "line", kThird);
  ASSERT_EQ(floor.size(), 2u);
  for (const SvgElement& line : floor) EXPECT_EQ(line["stroke-dasharray"], "6 4");
  EXPECT_NEAR(floor[0].number("y1"), kBottom - 340 * 2.5 / 10.5, 0.1);
  EXPECT_EQ(floor[0]["y1"], floor[0]["y2"]);
  EXPECT_EQ(floor[0]["x1"] + " " + floor[0]["x2"], "72 672");
  // The legend is right of the data, with a piece of each line.
  double above = 0;
  for (const auto& [name, color] : std::vector<std::pair<const char*, const char*>>{
           {"training", kFirst}, {"held out", kSecond}, {"floor: 2.5", kThird}}) {
    const std::vector<SvgElement> text = svg.says(name);
    ASSERT_EQ(text.size(), 1u) << name;
    EXPECT_GT(text[0].number("x"), kRight);
    EXPECT_GT(text[0].number("y"), above);
    above = text[0].number("y");
    const SvgElement piece = of_color(svg, "line", color).back();
    EXPECT_TRUE(piece.number("x1") > kRight && piece.number("x2") < text[0].number("x")) << name;
    EXPECT_NEAR(piece.number("y1"), above - 4, 0.1) << name;
  }
}

TEST(L03_Plots, TheGroundIsWhiteAndAllOfItIsWithin) {
  const SvgText svg(draw(LinePlot{"t", "x", "y", {{"a rather long name of a curve", {0, 1}, {0, 1}}}, {}}));
  EXPECT_EQ(svg.elements[1]["fill"], "#fff");
  EXPECT_EQ(svg.elements[1]["width"] + svg.elements[1]["height"], "100%100%");
  const double width = svg.elements[0].number("width"), height = svg.elements[0].number("height");
  EXPECT_EQ(svg.elements[0]["viewBox"], "0 0 " + svg.elements[0]["width"] + " " + svg.elements[0]["height"]);
  for (const SvgElement& text : svg.all("text")) {
    EXPECT_LT(text.number("x") + 7 * double(text.text.size()), width) << text.text;
    EXPECT_LT(text.number("y"), height) << text.text;
  }
}

TEST(L03_Plots, TextIsWrittenAsXmlNeedsIt) {
  const SvgText svg(draw(LinePlot{"a<b & c>d '\"", "\x01\n", "\xC3\xA9\xFF", {}, {}}));
  EXPECT_EQ(svg.says("a&lt;b &amp; c>d '\"").size(), 1u);
  EXPECT_EQ(svg.says("??").size(), 1u) << "control characters";
  EXPECT_EQ(svg.says("\xC3\xA9?").size(), 1u) << "UTF-8, and a byte that is not UTF-8";
}

TEST(L03_Plots, NumbersBelowZeroAndZeroItself) {
  const SvgText svg(draw(LinePlot{"", "", "", {{"s", {-1e6, 1e6}, {-0.004, 0.004}}}, {}}));
  for (const char* text : {"-1e+06", "-500000", "500000", "-0.004", "-0.002", "0.002", "0.004"})
    EXPECT_EQ(svg.says(text).size(), 1u) << text;
  EXPECT_EQ(svg.says("0").size(), 2u);
  EXPECT_EQ(svg.says("-0").size(), 0u);
}

// y is 0 or 1, except for the first points.
LinePlot with_outliers(int points, int outliers, double value) {
  LinePlot plot{"", "", "", {{"s", {}, {}}}, {}};
  for (int i = 0; i < points; ++i)
    plot.series[0].x.push_back(i), plot.series[0].y.push_back(i < outliers ? value : i % 2);
  return plot;
}

TEST(L03_Plots, OneInAHundredOfTheHighestIsLeftOut) {
  const auto shows = [](const LinePlot& plot, const char* text) {
    return !SvgText(draw(plot)).says(text).empty();
  };
  EXPECT_TRUE(shows(with_outliers(99, 1, 1000), "1000"));
  EXPECT_FALSE(shows(with_outliers(100, 1, 1000), "1000"));
  EXPECT_TRUE(shows(with_outliers(199, 2, 1000), "1000"));
  EXPECT_FALSE(shows(with_outliers(200, 2, 1000), "1000"));
  EXPECT_TRUE(shows(with_outliers(200, 3, 1000), "1000"));
  EXPECT_TRUE(shows(with_outliers(200, 1, -1000), "-1000")) << "the highest, not the lowest";
  LinePlot reference = with_outliers(200, 0, 0);
  reference.references = {{"r", 1000}};
  EXPECT_TRUE(shows(reference, "400")) << "a reference line is not a point";
  reference.references = {{"r", 0.5}, {"q", -1000}, {"s", 1000}};
  EXPECT_TRUE(shows(reference, "500") && shows(reference, "-500")) << "the axis must contain each of them";
  const SvgText cut(draw(with_outliers(200, 2, 1000)));
  EXPECT_EQ(cut.all("g").at(0)["clip-path"], "url(#frame)") << "lines are clipped at the frame";
  EXPECT_EQ(cut.all("clipPath").at(0)["id"], "frame");
}

TEST(L03_Plots, WhatIsNotFiniteLeavesAGap) {
  for (const bool in_x : {true, false})
    for (const double none : {double(NAN), double(INFINITY), -double(INFINITY)}) {
      Series s{"s", {0, 1, 2, 3, 4}, {1, 1, 1, 1, 1}};
      (in_x ? s.x : s.y)[2] = none;
      const SvgText svg(draw(LinePlot{"", "", "", {s}, {}}));
      EXPECT_EQ(of_color(svg, "path", kFirst).at(0)["d"], "M72 234L222 234M522 234L672 234");
    }
  const SvgText alone(draw(LinePlot{"", "", "", {{"s", {1, 2, 3}, {NAN, 1, NAN}}}, {}}));
  ASSERT_EQ(alone.all("circle").size(), 1u) << "a point alone is a dot";
  EXPECT_EQ(alone.all("circle")[0].number("cx"), 372);
  EXPECT_EQ(alone.all("circle")[0].number("cy"), 234);
  expect_refused("series uneven has 2 x and 1 y", [] {
    draw(LinePlot{"", "", "", {{"s", {1}, {1}}, {"uneven", {1, 2}, {1}}}, {}});
  });
}

TEST(L04_Plots, PointsAreDotsALineOrBoth) {
  using enum Series::Marks;
  for (const auto& [marks, dots, lines] : {std::tuple(Line, 0u, 1u), {Dots, 3u, 0u}, {LineAndDots, 3u, 1u}}) {
    const SvgText svg(draw(LinePlot{"", "", "", {{"s", {0, 1, 2}, {0, 1, 2}, marks}}, {}}));
    EXPECT_EQ(svg.all("circle").size(), dots);
    EXPECT_EQ(svg.all("path").size(), lines);
    for (const SvgElement& dot : svg.all("circle"))
      EXPECT_TRUE(dot.number("cx") > kLeft + 3.5 && dot.number("cx") < kRight - 3.5) << "cut in two";
  }
}

TEST(L03_Plots, ElevenCurvesHaveColorsOfTheirOwn) {
  const SvgText svg(draw(LinePlot{"", "", "", std::vector<Series>(12, {"c", {0, 1}, {1, 0}}), {}}));
  std::vector<std::string> colors;
  for (const SvgElement& curve : svg.all("path")) colors.push_back(curve["stroke"]);
  ASSERT_EQ(colors.size(), 12u);
  EXPECT_EQ(colors.back(), colors.front()) << "the twelfth color is the first";
  EXPECT_EQ(std::set<std::string>(colors.begin(), colors.end()).size(), 11u);
}

TEST(L03_Plots, ZeroIsShownWhereItIsNear) {
  const auto zeros = [](double low, double high) {
    return SvgText(draw(LinePlot{"", "", "", {{"s", {1, 2}, {low, high}}}, {}})).says("0");
  };
  ASSERT_EQ(zeros(4, 10).size(), 1u);
  EXPECT_EQ(zeros(4, 10)[0].number("y") - 4, kBottom) << "at the bottom";
  EXPECT_EQ(zeros(6, 10).size(), 0u);
}

// They are shown on pages of the repository: at most 60 KB each.
TEST(L03_Plots, ManyPointsMakeASmallFileWithTheSamePeaks) {
  Series s{"s", {}, {}};
  for (int i = 0; i < 200'000; ++i) s.x.push_back(i), s.y.push_back(std::sin(i / 50.0) + (i == 123'456));
  const std::string svg =
      draw(LinePlot{"", "", "", {s}, {{"highest", *std::max_element(s.y.begin(), s.y.end())}}});
  EXPECT_LT(svg.size(), 60'000u);
  const SvgText read(svg);
  const std::string highest = of_color(read, "line", kSecond).at(0)["y1"];
  EXPECT_NE(of_color(read, "path", kFirst).at(0)["d"].find(highest), std::string::npos) << "one peak of many";
}

TEST(L01_Plots, EachBarHasItsNameItsLengthAndItsLabel) {
  const SvgText chart(draw(BarChart{"ladder",
                                    {{"naive", 1, "1 GFLOP/s"},
                                     {"tiled", 2, "2 GFLOP/s"},
                                     {"best", 4, "4 GFLOP/s"},
                                     {"none", NAN, "-"},
                                     {"less", -1, "below"}}}));
  EXPECT_EQ(chart.says("ladder").size(), 1u);
  const std::vector<SvgElement> bars = of_color(chart, "rect", kFirst);
  ASSERT_EQ(bars.size(), 3u);
  const char *const names[] = {"naive", "tiled", "best", "none", "less"}, *const labels[] = {
                                                                              "1 GFLOP/s", "2 GFLOP/s",
                                                                              "4 GFLOP/s", "-", "below"};
  const double lengths[] = {120, 240, 480, 0, 0}, left = bars[0].number("x");
  for (int i = 0; i < 5; ++i) {
    const std::vector<SvgElement> name = chart.says(names[i]), label = chart.says(labels[i]);
    ASSERT_TRUE(name.size() == 1 && label.size() == 1) << names[i];
    EXPECT_EQ(name[0]["text-anchor"], "end");
    EXPECT_NEAR(name[0].number("x"), left - 8, 0.2);
    EXPECT_NEAR(label[0].number("x"), left + lengths[i] + 8, 0.2);
    EXPECT_EQ(name[0]["y"], label[0]["y"]);
    if (lengths[i] == 0) continue;
    EXPECT_EQ(bars[i].number("x"), left);
    EXPECT_EQ(bars[i].number("width"), lengths[i]);
    EXPECT_TRUE(bars[i].number("y") < name[0].number("y") && name[0].number("y") < bars[i].number("y") + 22);
  }
}

TEST(L04_Plots, AStackFromTheBottomHoldsUntilTheNextPoint) {
  const std::vector<double> x{0, 1, 2, 3};
  const SvgText svg(
      draw(StackPlot{"memory",
                     "event",
                     "MiB",
                     {{"weights", x, {2, 2, 2, 2}}, {"unused", x, {0, 0, 0, 0}}, {"data", x, {0, 2, 2, 0}}},
                     {"reserved", x, {4, 4, 8, 8}}}));
  for (const char* text : {"memory", "event", "MiB"}) EXPECT_EQ(svg.says(text).size(), 1u) << text;
  EXPECT_EQ(svg.says("unused").size(), 0u);
  // 8.4 MiB are 340 pixels: 2 are 81; the points are at 72, 272, 472 and 672.
  EXPECT_EQ(of_color(svg, "path", kFirst).at(0)["d"], "M72 323H672V404H72Z");
  EXPECT_EQ(of_color(svg, "path", kThird).at(0)["d"], "M72 323H272V242.1H672V323H672V404H72Z");
  EXPECT_EQ(of_color(svg, "path", kInk).at(0)["d"], "M72 242.1H472V80.2H672");
  const std::vector<SvgElement> drawn = svg.all("path");
  EXPECT_EQ(drawn[0]["fill"] + drawn[1]["fill"], std::string(kThird) + kFirst) << "the lower layer is on top";
  double above = 0;  // the line, then the layers from the top
  for (const char* name : {"reserved", "data", "weights"}) {
    EXPECT_GT(svg.says(name).at(0).number("x"), kRight);
    EXPECT_GT(svg.says(name)[0].number("y"), above);
    above = svg.says(name)[0].number("y");
  }
  EXPECT_GT(of_color(svg, "rect", kFirst).at(0).number("y"), of_color(svg, "rect", kThird).at(0).number("y"));
  expect_refused("plot: nothing has no points", [] { draw(StackPlot{"nothing", "", "", {}, {}}); });
}

TEST(L04_Plots, AColumnShowsTheHighestSumThatFallsOnIt) {
  for (const size_t peak : {1, 2, 3}) {
    Series a{"a", {0, 1, 1.0001, 1.0002, 3}, {1, 1, 1, 1, 1}}, b = a, line = a;
    for (double& y : line.y) y = 8;
    b.y = {0, 0, 0, 0, 0};
    b.y[peak] = 5;
    const SvgText svg(draw(StackPlot{"", "", "", {a, b}, line}));
    EXPECT_EQ(of_color(svg, "path", kSecond).at(0)["d"],
              peak == 3 ? "M72 363.5H272V161.1H672V363.5H672V404H72Z"  // it holds until the next point
                        : "M72 363.5H272V161.1H273V363.5H672V404H72Z")
        << "6 of 8.4, at point " << peak;
  }
  const SvgText fall(draw(StackPlot{"", "", "", {{"a", {0, 1, 3}, {6, 1, 1}}}, {"a", {0, 1, 3}, {8, 8, 8}}}));
  EXPECT_EQ(of_color(fall, "path", kFirst).at(0)["d"], "M72 161.1H272V363.5H672V404H72Z")
      << "the previous value does not count in this column";
}

// Ranges that an axis may have: a few units in the last place, denormals, all doubles, nothing.
constexpr double kMax = std::numeric_limits<double>::max(), kTiny = 5e-324, kInf = INFINITY;
const std::pair<double, double> kSpans[] = {
    {1, 1 + 0x1p-52},        {1e16, 1e16 + 2}, {-1 - 0x1p-52, -1}, {0, kTiny},
    {-kTiny, kTiny},         {1e-310, 3e-310}, {-1e-310, 1},       {kMax, kMax},
    {0.999999 * kMax, kMax}, {-kMax, kMax},    {-1e308, 1e308},    {0, kMax},
    {1e300, 1e301},          {1e-300, 1e300},  {-1e16 - 2, -1e16}, {0x1p53, 0x1p53 + 2}};

TEST(L03_Plots, AxesOfAnySpanHaveAFewNumbersAndACurve) {
  for (const auto& [low, high] : kSpans)
    for (const LinePlot& plot :
         {LinePlot{"y", "", "", {{"s", {1, 2, 3}, {low, high, low}}}, {}},
          LinePlot{"x", "", "", {{"s", {low, high}, {1, 2}}}, {{"mean", 1.5}}},
          LinePlot{"both", "", "", {{"s", {low, high}, {low, high}}}, {{"low", low}}}}) {
      const SvgText svg(draw(plot));
      EXPECT_EQ(of_color(svg, "path", kFirst).size(), 1u) << plot.title << ": " << low << " to " << high;
      const size_t grid = of_color(svg, "line", "#e4e4e8").size();
      EXPECT_TRUE(grid >= 2 && grid <= 18) << plot.title << ": " << low << " to " << high << ", " << grid;
    }
}

TEST(L04_Plots, StacksAndBarsOfAnySizeAreDrawn) {
  for (const auto& [low, high] : kSpans) {
    SvgText(draw(StackPlot{"x", "", "", {{"layer", {}, {1, 2}}}, {"line", {low, high}, {2, 3}}}));
    SvgText(draw(StackPlot{
        "y", "", "", {{"layer", {}, {low, high}}}, {"line", {0, 1}, {std::abs(low), std::abs(high)}}}));
  }
  SvgText(
      draw(StackPlot{"odd", "", "", {{"l", {}, {NAN, kInf, -kInf}}}, {"l", {0, 1, 2}, {kInf, NAN, -kInf}}}));
  SvgText(draw(StackPlot{"odd x", "", "", {{"l", {}, {1, 2, 3}}}, {"l", {NAN, kInf, -kInf}, {1, 2, 3}}}));
  for (const double v : {kInf, -kInf, double(NAN), kMax, -kMax, kTiny}) {
    SvgText(draw(LinePlot{"reference", "", "", {{"s", {0, 1}, {0, 1}}}, {{"r", v}}}));
    SvgText(draw(BarChart{"bars", {{"a", v, ""}, {"b", kTiny, ""}, {"c", 1, ""}}}));
  }
  for (const LinePlot& plot : {LinePlot{}, LinePlot{"none", "", "", {{"n", {1, 2}, {NAN, NAN}}}, {}},
                               LinePlot{"zero", "", "", {{"c", {1, 2, 3}, {0, 0, 0}}}, {{"zero", 0}}}})
    SvgText(draw(plot));
  SvgText(draw(BarChart{}));
}

}  // namespace
}  // namespace gradus
