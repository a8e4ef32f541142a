// What the pictures say: their words and numbers, found again in the pixels, and what is drawn where.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "src/io/memory_files.h"
#include "tests/memory/allocator_fixture.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr Rgb kInk{40, 40, 45}, kFirst{31, 99, 180}, kSecond{225, 110, 20}, kThird{40, 140, 60};

using Places = std::vector<std::pair<int, int>>;

// The upper left corners of all places where this and nothing beside it is written in ink.
Places places(const Canvas& canvas, const std::string& s) {
  constexpr int kBeside = 6;
  Canvas letters(Canvas::text_width(s) + 2 * kBeside, 18);
  letters.text(kBeside, 0, s, kInk);
  const int width = canvas.width();
  std::vector<bool> ink;
  for (int at = 0; at < width * canvas.height(); ++at)
    ink.push_back(canvas.at(at % width, at / width) == kInk);
  std::vector<int> set, clear;  // pixels of the letters, and those between and beside them
  for (int y = 0; y < letters.height(); ++y)
    for (int x = 0; x < letters.width(); ++x)
      (letters.at(x, y) == kInk ? set : clear).push_back(y * width + x);
  Places found;
  for (int y = 0; y + letters.height() <= canvas.height(); ++y)
    for (int x = 0; x + letters.width() <= width; ++x) {
      const auto is_ink = [&](int pixel) { return ink[size_t(y * width + x + pixel)]; };
      if (std::all_of(set.begin(), set.end(), is_ink) && std::none_of(clear.begin(), clear.end(), is_ink))
        found.emplace_back(x + kBeside, y);
    }
  return found;
}

// Turned to the right, so that what runs upwards can be read.
Canvas turned(const Canvas& canvas) {
  Canvas made(canvas.height(), canvas.width());
  for (int y = 0; y < canvas.height(); ++y)
    for (int x = 0; x < canvas.width(); ++x) made.set(canvas.height() - 1 - y, x, canvas.at(x, y));
  return made;
}

// In the middle between the frame's sides, which are at 100 and at `right`.
int centered(const std::string& s, int right = 930) { return (100 + right - Canvas::text_width(s)) / 2; }

TEST(L01_Plots, LettersBelowTheLineAndUnknownOnes) {
  Canvas canvas(100, 20), question(100, 20);
  canvas.text(0, 0, "g\xC3\xA9\x7F", kInk);
  question.text(12, 0, "???", kInk);
  for (int y = 0; y < 18; ++y)
    for (int x = 12; x < 48; ++x) ASSERT_EQ(canvas.at(x, y), question.at(x, y)) << "a byte that is no ASCII";
  for (const char* tail : {"g", "p", "q", "y"}) {
    Canvas letter(10, 18);
    letter.text(0, 0, tail, kInk);
    int above = 0, below = 0;
    for (int x = 0; x < 10; ++x)
      for (int y = 0; y < 4; ++y) above += letter.at(x, y) == kInk, below += letter.at(x, 14 + y) == kInk;
    EXPECT_EQ(above, 0) << tail;
    EXPECT_GT(below, 0) << tail << " hangs below the line";
  }
}

TEST(L03_Plots, ALinePlotHasItsWordsItsNumbersAndEachCurveItsColor) {
  const Canvas canvas = draw(LinePlot{"two runs",
                                      "step",
                                      "nats",
                                      {{"training", {0, 10}, {0, 10}}, {"held out", {0, 10}, {10, 0}}},
                                      {{"floor", 2.5}}});
  EXPECT_EQ(places(canvas, "two runs"), (Places{{centered("two runs"), 20}}));
  EXPECT_EQ(places(canvas, "step"), (Places{{centered("step"), 574}}));
  EXPECT_EQ(places(turned(canvas), "nats").size(), 1u);
  // From 0 to 10 along, from 0 to 10.5 up, numbers at every second.
  for (const int i : {0, 4, 10}) {
    const std::string text = std::to_string(i);
    const int width = Canvas::text_width(text), y = int(530 - 480 * i / 10.5);
    EXPECT_EQ(places(canvas, text), (Places{{88 - width, y - 7}, {100 + 83 * i - width / 2, 542}})) << i;
  }
  EXPECT_EQ(canvas.at(349, 393), kFirst) << "3 of the rising curve at 3";
  EXPECT_EQ(canvas.at(349, 210), kSecond) << "7 of the falling one";
  int dashes = 0;
  for (int x = 105; x < 925; ++x) dashes += canvas.at(x, 416) == kThird;
  EXPECT_GT(dashes, 820 * 4 / 10);
  EXPECT_LT(dashes, 820 * 3 / 4) << "a reference is dashed";
  const Places first = places(canvas, "training"), second = places(canvas, "held out"),
               third = places(canvas, "floor: 2.5");
  ASSERT_TRUE(first.size() == 1 && second.size() == 1 && third.size() == 1);
  const int x = first[0].first, y = first[0].second;
  EXPECT_EQ(second[0], std::pair(x, y + 24));
  EXPECT_EQ(third[0], std::pair(x, y + 48));
  EXPECT_EQ(canvas.at(x - 30, y + 7), kFirst);
  EXPECT_EQ(canvas.at(x - 30, y + 24 + 7), kSecond);
  EXPECT_EQ(canvas.at(x - 40, y + 48 + 7), kThird);
  EXPECT_NE(canvas.at(x - 32, y + 48 + 7), kThird) << "between two dashes";
}

TEST(L03_Plots, NumbersBelowZeroAndZeroItself) {
  const Canvas canvas = draw(LinePlot{"", "", "", {{"s", {-1e6, 1e6}, {-0.004, 0.004}}}, {}});
  for (const char* text : {"-1e+06", "-5e+05", "5e+05", "-0.004", "-0.002", "0.002", "0.004"})
    EXPECT_EQ(places(canvas, text).size(), 1u) << text;
  EXPECT_EQ(places(canvas, "0").size(), 2u);
  EXPECT_EQ(places(canvas, "-0"), Places{});
}

// y is 0 or 1, but for the first ones.
LinePlot with_outliers(int points, int outliers, double value) {
  LinePlot plot{"", "", "", {{"s", {}, {}}}, {}};
  for (int i = 0; i < points; ++i)
    plot.series[0].x.push_back(i), plot.series[0].y.push_back(i < outliers ? value : i % 2);
  return plot;
}

TEST(L03_Plots, OneInAHundredOfTheHighestIsLeftOut) {
  const auto shows = [](const LinePlot& plot, const char* text) { return !places(draw(plot), text).empty(); };
  EXPECT_TRUE(shows(with_outliers(99, 1, 1000), "1000"));
  EXPECT_FALSE(shows(with_outliers(100, 1, 1000), "1000"));
  EXPECT_TRUE(shows(with_outliers(199, 2, 1000), "1000"));
  EXPECT_FALSE(shows(with_outliers(200, 2, 1000), "1000"));
  EXPECT_TRUE(shows(with_outliers(200, 3, 1000), "1000"));
  EXPECT_TRUE(shows(with_outliers(200, 1, -1000), "-1000")) << "the highest, not the lowest";
  LinePlot reference = with_outliers(200, 0, 0);
  reference.references = {{"r", 1000}};
  EXPECT_TRUE(shows(reference, "400")) << "a reference is no point";
  reference.references = {{"r", 0.5}, {"q", -1000}, {"s", 1000}};
  EXPECT_TRUE(shows(reference, "500") && shows(reference, "-500")) << "each of them is within the axis";
}

TEST(L03_Plots, WhatIsNotFiniteLeavesAGap) {
  for (const bool in_x : {true, false})
    for (const double none : {double(NAN), double(INFINITY), -double(INFINITY)}) {
      Series s{"s", {0, 1, 2, 3, 4}, {1, 1, 1, 1, 1}};
      (in_x ? s.x : s.y)[2] = none;
      const Canvas canvas = draw(LinePlot{"", "", "", {s}, {}});
      EXPECT_EQ(canvas.at(200, 290), kFirst);
      EXPECT_NE(canvas.at(450, 290), kFirst);
      EXPECT_NE(canvas.at(580, 290), kFirst);
      EXPECT_EQ(canvas.at(830, 290), kFirst);
    }
  const Canvas alone = draw(LinePlot{"", "", "", {{"s", {1, 2, 3}, {NAN, 1, NAN}}}, {}});
  EXPECT_EQ(alone.at(515, 290), kFirst) << "a point alone is a dot";
  expect_refused("series uneven has 2 x and 1 y", [] {
    draw(LinePlot{"", "", "", {{"s", {1}, {1}}, {"uneven", {1, 2}, {1}}}, {}});
  });
}

TEST(L03_Plots, TheNamesAreWhereNoCurveIs) {
  const Series rises{"rises", {0, 1}, {0, 1}}, falls{"falls", {0, 1}, {1, 0}};
  const auto x_of_names = [](const std::vector<Series>& series) {
    return places(draw(LinePlot{"", "", "", series, {}}), series[0].name).at(0).first;
  };
  EXPECT_LT(x_of_names({rises, rises}), 200);
  EXPECT_GT(x_of_names({falls}), 800);
  EXPECT_GT(x_of_names({rises, falls}), 800);
  EXPECT_GT(x_of_names({falls, rises}), 800);
}

TEST(L03_Plots, ElevenCurvesHaveColorsOfTheirOwn) {
  LinePlot plot{"", "", "", std::vector<Series>(12, {"c", {0, 1}, {1, 0}}), {}};
  const Canvas canvas = draw(plot);
  const Places names = places(canvas, "c");
  ASSERT_EQ(names.size(), 12u);
  std::vector<Rgb> colors;
  for (const auto& [x, y] : names) colors.push_back(canvas.at(x - 30, y + 7));
  EXPECT_EQ(colors.back(), colors.front()) << "the twelfth begins anew";
  EXPECT_EQ(std::set<Rgb>(colors.begin(), colors.end()).size(), 11u);
}

TEST(L03_Plots, ZeroIsShownWhereItIsNear) {
  const auto zeros = [](double low, double high) {
    return places(draw(LinePlot{"", "", "", {{"s", {1, 2}, {low, high}}}, {}}), "0");
  };
  EXPECT_EQ(zeros(4, 10), (Places{{78, 523}})) << "at the bottom";
  EXPECT_EQ(zeros(6, 10), Places{});
}

TEST(L01_Plots, EachBarHasItsNameItsLengthAndItsLabel) {
  const Canvas chart = draw(BarChart{
      "ladder",
      {{"naive", 1, "1 GFLOP/s"}, {"tiled", 2, "2 GFLOP/s"}, {"best", 4, "4 GFLOP/s"}, {"none", NAN, "-"}}});
  EXPECT_EQ(chart.height(), 60 + 4 * 42 + 20);
  EXPECT_EQ(places(chart, "ladder"), (Places{{(960 - Canvas::text_width("ladder")) / 2, 20}}));
  // The longest bar takes what the names (to 98), the labels and the margins leave of the width: 716.
  const char *const names[] = {"naive", "tiled", "best", "none"}, *const labels[] = {"1 GFLOP/s", "2 GFLOP/s",
                                                                                     "4 GFLOP/s", "-"};
  const int lengths[] = {179, 358, 716, 0};
  for (int i = 0; i < 4; ++i) {
    const int y = 60 + 42 * i + 6, end = 98 + lengths[i];
    EXPECT_EQ(places(chart, names[i]), (Places{{84 - Canvas::text_width(names[i]), y}}));
    EXPECT_EQ(places(chart, labels[i]), (Places{{end + 12, y}})) << names[i];
    EXPECT_EQ(chart.at(end - 1, y) == kFirst, lengths[i] > 0) << names[i];
    EXPECT_NE(chart.at(end + 1, y), kFirst) << names[i];
  }
}

TEST(L04_Plots, AStackFromTheBottomHoldsUntilTheNextPoint) {
  const std::vector<double> x{0, 1, 2, 3};
  const Canvas canvas =
      draw(StackPlot{"memory",
                     "event",
                     "MiB",
                     {{"weights", x, {2, 2, 2, 2}}, {"data", x, {0, 2, 2, 0}}, {"unused", x, {0, 0, 0, 0}}},
                     {"reserved", x, {4, 4, 8, 8}}});
  EXPECT_EQ(places(canvas, "memory"), (Places{{centered("memory"), 20}}));
  EXPECT_EQ(places(canvas, "event"), (Places{{centered("event"), 574}}));
  EXPECT_EQ(places(turned(canvas), "MiB").size(), 1u);
  EXPECT_EQ(places(canvas, "reserved"), (Places{{980, 50}})) << "the line, then the layers from the top";
  EXPECT_EQ(places(canvas, "data"), (Places{{980, 74}}));
  EXPECT_EQ(places(canvas, "weights"), (Places{{980, 98}}));
  EXPECT_EQ(places(canvas, "unused"), Places{});
  EXPECT_EQ(canvas.at(950, 57), kInk);
  EXPECT_EQ(canvas.at(950, 81), kSecond);
  EXPECT_EQ(canvas.at(950, 105), kFirst);
  // 8.4 MiB are 480 pixels; the points are at the columns 100, 377, 653 and 930.
  for (const int column : {120, 370}) {
    EXPECT_EQ(canvas.at(column, 500), kFirst);
    EXPECT_NE(canvas.at(column, 350), kSecond) << "no data before event 1";
    EXPECT_EQ(canvas.at(column, 300), kInk) << "4 are reserved";
  }
  for (const int column : {380, 645, 660, 920}) {
    EXPECT_EQ(canvas.at(column, 500), kFirst);
    EXPECT_EQ(canvas.at(column, 350), kSecond);
    EXPECT_EQ(canvas.at(column, column < 653 ? 300 : 72), kInk);
  }
  expect_refused("plot: nothing has no points", [] { draw(StackPlot{"nothing", "", "", {}, {}}); });
}

TEST(L04_Plots, AColumnShowsTheHighestSumThatFallsOnIt) {
  for (const size_t peak : {1, 2, 3}) {
    Series a{"a", {0, 1, 1.0001, 1.0002, 3}, {1, 1, 1, 1, 1}}, b = a, line = a;
    for (double& y : line.y) y = 8;
    b.y[peak] = 5;
    const Canvas canvas = draw(StackPlot{"", "", "", {a, b}, line});
    EXPECT_EQ(canvas.at(377, 250), kSecond) << "6 of 8.4, at point " << peak;
    EXPECT_NE(canvas.at(376, 250), kSecond);
    EXPECT_EQ(canvas.at(380, 250) == kSecond, peak == 3) << "the last of them holds until the next";
  }
  const Canvas fall = draw(StackPlot{"", "", "", {{"a", {0, 1, 3}, {6, 1, 1}}}, {"a", {0, 1, 3}, {8, 8, 8}}});
  EXPECT_EQ(fall.at(376, 250), kFirst);
  EXPECT_NE(fall.at(377, 250), kFirst) << "what held before is not of this column";
}

TEST(L02_Plots, ADecisionMapHasItsSidesItsPointsAndItsBounds) {
  std::set<double> across, up;
  int asked = 0;
  const auto upper_right = [&](double x, double y) {
    across.insert(x), up.insert(y), ++asked;
    return x > 1 && y > 0 ? 2.0 : -1.0;
  };
  const Canvas map = draw(DecisionMap{"spirals", -2, 4, -1, 1, upper_right, {{0, -0.5, 1}, {3, 0.8, 0}}});
  EXPECT_EQ(asked, 101 * 101);
  EXPECT_EQ(across.size(), 101u);
  EXPECT_EQ(up.size(), 101u);
  EXPECT_EQ(std::pair(*across.begin(), *across.rbegin()), std::pair(-2.0, 4.0));
  EXPECT_EQ(std::pair(*up.begin(), *up.rbegin()), std::pair(-1.0, 1.0));
  const Rgb zero{150, 190, 235}, one{250, 195, 140};
  EXPECT_EQ(map.at(600, 200), one) << "x is 3, y is 0.5";
  EXPECT_EQ(map.at(300, 200), zero);
  EXPECT_EQ(map.at(600, 500), zero);
  EXPECT_EQ(map.at(300, 500), kSecond) << "a point of label 1";
  EXPECT_EQ(map.at(600, 110), kFirst) << "a point of label 0";
  for (int x = 110; x < 690; ++x)
    EXPECT_TRUE(map.at(x, 200) != kInk || (x >= 398 && x <= 408)) << "the line is at x = 1, not at " << x;
  int line = 0;
  for (int x = 398; x <= 408; ++x) line += map.at(x, 200) == kInk;
  EXPECT_GE(line, 1);
  EXPECT_EQ(places(map, "spirals"), (Places{{centered("spirals", 700), 20}}));
  EXPECT_EQ(places(map, "4"), (Places{{695, 662}}));
  EXPECT_EQ(places(map, "x").size() + places(turned(map), "y").size(), 2u);
  const Canvas quarter = draw(DecisionMap{"", -1, 1, -1, 1, [](double, double) { return 0.25; }, {}});
  EXPECT_EQ(quarter.at(300, 200), (Rgb{175, 191, 211})) << "a quarter of the way from one to the other";
}

TEST(L04_Plots, ThePictureOfTheMemoryIsInMiBAndNamesWhatThereWas) {
  Fixture f;
  f.allocator.keep_history();
  Block* const w = f.allocator.allocate(40 * kMiB, Kind::Weight, "w");
  Canvas canvas = draw_memory(f.allocator, "a run");
  for (const char* text : {"a run", "event (allocation, free, segment)", "reserved", "weight", "40"})
    EXPECT_EQ(places(canvas, text).size(), 1u) << text;
  for (const char* text : {"rounding", "master", "data"}) EXPECT_EQ(places(canvas, text), Places{}) << text;
  EXPECT_EQ(places(canvas, "40"), (Places{{66, 65}})) << "of 42";
  EXPECT_EQ(places(turned(canvas), "MiB").size(), 1u);
  Block* const data = f.allocator.allocate(18 * kMiB + 1, Kind::Data, "d");
  canvas = draw_memory(f.allocator, "a run");
  EXPECT_EQ(places(canvas, "data").size(), 1u);
  EXPECT_EQ(places(canvas, "rounding").size(), 1u);
  for (Block* b : {w, data}) f.allocator.free(b);
}

}  // namespace
}  // namespace gradus
