// Pictures: what is drawn is in the pixels, and the file is a PNG.
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <limits>

#include "kernels/check.h"
#include "src/io/png.h"
#include "tests/folder_testing.h"

#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_PNG
#include <stb/stb_image.h>

namespace gradus {
namespace {

constexpr Rgb kRed{255, 0, 0}, kBackground{255, 255, 255}, kFirstColor{31, 99, 180},
    kSecondColor{225, 110, 20}, kInk{40, 40, 45};

int count(const Canvas& canvas, Rgb color) {
  int pixels = 0;
  for (int y = 0; y < canvas.height(); ++y)
    for (int x = 0; x < canvas.width(); ++x) pixels += canvas.at(x, y) == color;
  return pixels;
}

TEST(L01_Png, DrawingIsExactInsideAndCutOffOutside) {
  Canvas canvas(20, 10);
  EXPECT_EQ(count(canvas, kBackground), 200);
  canvas.fill_rect(2, 3, 4, 5, kRed);
  EXPECT_EQ(count(canvas, kRed), 20);
  canvas.fill_rect(-5, -5, 8, 6, kRed);  // only (0..2, 0) is inside
  EXPECT_EQ(count(canvas, kRed), 23);
  canvas.line(-1e9, 9, 1e9, 9, kRed);  // one pixel wide, through pixel centers
  EXPECT_EQ(count(canvas, kRed), 43);
  canvas.line(NAN, 0, 5, 5, kRed);
  canvas.text(-100, 100, "far away", kRed);
  canvas.set(20, 0, kRed);
  EXPECT_EQ(count(canvas, kRed), 43);
  EXPECT_THROW(canvas.at(20, 0), Error);
  EXPECT_THROW(Canvas(0, 5), Error);
}

class L01_PngFile : public FolderTest {};

// Every pixel of a file of more than 64 KiB, read back by stb_image.
TEST_F(L01_PngFile, HasEveryPixel) {
  const std::string file = path("a.png");
  for (const auto& [width, height] : std::vector<std::pair<int, int>>{{1, 1}, {3, 2}, {301, 203}}) {
    Canvas canvas(width, height);
    uint32_t noise = 1;
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        noise = noise * 1664525 + 1013904223;
        canvas.set(x, y, {uint8_t(noise >> 24), uint8_t(noise >> 16), uint8_t(x + y)});
      }
    canvas.write_png(file);
    EXPECT_TRUE(width < 300 || fs::file_size(file) > 65536);
    int read_width = 0, read_height = 0, channels = 0;
    uint8_t* const pixels = stbi_load(file.c_str(), &read_width, &read_height, &channels, 3);
    ASSERT_NE(pixels, nullptr) << stbi_failure_reason();
    ASSERT_EQ(read_width, width);
    ASSERT_EQ(read_height, height);
    EXPECT_EQ(channels, 3);
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        const uint8_t* const p = pixels + 3 * (y * width + x);
        ASSERT_EQ(canvas.at(x, y), (Rgb{p[0], p[1], p[2]})) << x << ", " << y;
      }
    stbi_image_free(pixels);
  }
}

TEST(L01_Png, OpacityMixesAndEdgesAreCutOff) {
  Canvas canvas(4, 3);
  canvas.set(3, 2, {100, 0, 255}, 0.5);
  EXPECT_EQ(canvas.at(3, 2), (Rgb{178, 128, 255}));
  canvas.set(0, 0, {100, 0, 255}, 0);
  EXPECT_EQ(canvas.at(0, 0), kBackground);
  canvas.set(0, 0, kRed, 1);
  EXPECT_EQ(canvas.at(0, 0), kRed);
  for (const auto& [x, y] : std::vector<std::pair<int, int>>{{-1, 0}, {4, 0}, {0, -1}, {0, 3}}) {
    canvas.set(x, y, kRed);
    EXPECT_THROW(canvas.at(x, y), Error);
  }
  EXPECT_EQ(count(canvas, kRed), 1);
  canvas.fill_rect(1, 1, INT_MAX, INT_MAX, kRed);
  EXPECT_EQ(count(canvas, kRed), 1 + 3 * 2) << "to the lower right corner";
  canvas.fill_rect(0, 0, 0, 3, kSecondColor);
  canvas.fill_rect(0, 0, 3, -1, kSecondColor);
  EXPECT_EQ(count(canvas, kSecondColor), 0);
  EXPECT_EQ(Canvas(1 << 14, 1).width(), 1 << 14);
  EXPECT_EQ(Canvas(1, 1 << 14).height(), 1 << 14);
  EXPECT_THROW(Canvas((1 << 14) + 1, 1), Error);
  EXPECT_THROW(Canvas(1, (1 << 14) + 1), Error);
  EXPECT_THROW(Canvas(1, 0), Error);
}

TEST(L01_Png, LinesHaveRoundEndsAndTheirThickness) {
  Canvas disc(21, 21);
  disc.line(10, 10, 10, 10, kRed, 7);  // a disc of radius 3.5
  for (int y = 0; y < 21; ++y)
    for (int x = 0; x < 21; ++x) {
      const double distance = std::hypot(x - 10, y - 10);
      EXPECT_TRUE(distance > 3 || disc.at(x, y) == kRed) << x << ", " << y;
      EXPECT_TRUE(distance < 4 || disc.at(x, y) == kBackground) << x << ", " << y;
    }
  Canvas line(21, 21);
  line.line(5, 10, 15, 10, kRed, 3);
  for (int x = 5; x <= 15; ++x)
    for (int y = 0; y < 21; ++y) EXPECT_EQ(line.at(x, y) == kRed, std::abs(y - 10) <= 1) << x << ", " << y;
  EXPECT_EQ(line.at(16, 10), kRed);
  EXPECT_EQ(line.at(17, 10), kBackground);
  EXPECT_EQ(line.at(3, 10), kBackground);
}

TEST(L01_Png, TextIsMagnifiedAndTurned) {
  EXPECT_EQ(Canvas::text_width("abc", 1), 17);  // 3 x 5 and two gaps
  EXPECT_EQ(Canvas::text_width("abc"), 34);
  EXPECT_EQ(Canvas::text_height(), 14);
  Canvas once(30, 30), twice(60, 60), upwards(30, 30);
  once.text(2, 3, "Fg", kRed, 1);
  twice.text(4, 6, "Fg", kRed, 2);
  upwards.text_upwards(3, 28, "Fg", kRed, 1);  // from the left lower corner up
  EXPECT_GT(count(once, kRed), 20);
  EXPECT_EQ(once.at(2, 3), kRed) << "the upper left of an F";
  for (int y = 0; y < 60; ++y)
    for (int x = 0; x < 60; ++x) ASSERT_EQ(twice.at(x, y), once.at(x / 2, y / 2)) << x << ", " << y;
  for (int y = 3; y < 20; ++y)
    for (int x = 2; x < 25; ++x) ASSERT_EQ(upwards.at(y, 29 - x), once.at(x, y)) << x << ", " << y;
}

TEST(L01_Png, EveryCharacterHasItsOwnShape) {
  std::vector<Canvas> shapes;
  for (char c = ' '; c <= '~'; ++c) {
    shapes.emplace_back(6, 9);
    shapes.back().text(0, 0, std::string(1, c), kRed, 1);
    EXPECT_EQ(count(shapes.back(), kRed) > 0, c != ' ') << c;
    for (int y = 0; y < 9; ++y)
      EXPECT_EQ(shapes.back().at(5, y), kBackground) << c;  // the gap between characters
  }
  const auto equal = [](const Canvas& a, const Canvas& b) {
    for (int i = 0; i < 6 * 9; ++i)
      if (a.at(i % 6, i / 6) != b.at(i % 6, i / 6)) return false;
    return true;
  };
  for (size_t i = 0; i < shapes.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_FALSE(equal(shapes[i], shapes[j])) << char(32 + i) << " " << char(32 + j);
}

TEST(L01_Png, BarsAreAsLongAsTheirValues) {
  const Canvas chart =
      draw(BarChart{"ladder", {{"naive", 1, "1"}, {"tiled", 50, "50"}, {"library", 100, "100"}}});
  std::vector<int> lengths;  // pixels of the bars' color in rows through them
  for (int y = 0; y < chart.height(); ++y) {
    int length = 0;
    for (int x = 0; x < chart.width(); ++x) length += chart.at(x, y) == kFirstColor;
    if (length > 0 && (lengths.empty() || lengths.back() != length)) lengths.push_back(length);
  }
  ASSERT_EQ(lengths.size(), 3u);
  EXPECT_NEAR(lengths[0], lengths[2] / 100.0, 1);
  EXPECT_NEAR(lengths[1], lengths[2] / 2.0, 1);
  draw(BarChart{"odd", {{"nan", NAN, ""}, {"zero", 0, ""}, {"negative", -3, ""}}});  // must not crash
  draw(BarChart{});
}

TEST(L03_Png, CurvesAndReferencesAreDrawnAndOddDataDoNotCrash) {
  LinePlot plot{"loss", "step", "nats", {{"training", {}, {}}}, {{"floor", 0.4}}};
  for (int i = 0; i < 500; ++i)
    plot.series[0].x.push_back(i), plot.series[0].y.push_back(0.4 + 5 * std::exp(-i / 50.0));
  const Canvas canvas = draw(plot);
  EXPECT_GT(count(canvas, kFirstColor), 500);
  EXPECT_GT(count(canvas, kSecondColor), 300);
  plot.series[0].y[10] = NAN;
  plot.series[0].y[20] = INFINITY;
  EXPECT_GT(count(draw(plot), kFirstColor), 500);
  draw(LinePlot{});
  draw(LinePlot{"one point", "", "", {{"p", {1}, {1e300}}}, {}});
  draw(LinePlot{"constant", "", "", {{"c", {1, 2, 3}, {0, 0, 0}}}, {{"zero", 0}}});
  draw(LinePlot{"no finite point", "", "", {{"n", {1, 2}, {NAN, NAN}}}, {}});
  EXPECT_THROW(draw(LinePlot{"", "", "", {{"uneven", {1, 2}, {1}}}, {}}), Error);
}

// What an axis may have to span: a few units of the last place, denormals, all doubles, nothing.
constexpr double kMax = std::numeric_limits<double>::max(), kTiny = 5e-324, kInf = INFINITY;
const std::pair<double, double> kSpans[] = {
    {1, 1 + 0x1p-52},        {1e16, 1e16 + 2}, {-1 - 0x1p-52, -1}, {0, kTiny},
    {-kTiny, kTiny},         {1e-310, 3e-310}, {-1e-310, 1},       {kMax, kMax},
    {0.999999 * kMax, kMax}, {-kMax, kMax},    {-1e308, 1e308},    {0, kMax},
    {1e300, 1e301},          {1e-300, 1e300},  {-1e16 - 2, -1e16}, {0x1p53, 0x1p53 + 2}};

bool is_grid(Rgb c) { return c[0] == c[1] && c[0] >= 225 && c[0] < 255; }

TEST(L03_Png, AxesOfAnySpanAreDrawn) {
  for (const auto& [low, high] : kSpans) {
    const std::string span = std::to_string(low) + " to " + std::to_string(high);
    for (const LinePlot& plot :
         {LinePlot{"y", "", "", {{"s", {1, 2, 3}, {low, high, low}}}, {}},
          LinePlot{"x", "", "", {{"s", {low, high}, {1, 2}}}, {{"mean", 1.5}}},
          LinePlot{"both", "", "", {{"s", {low, high}, {low, high}}}, {{"low", low}}}}) {
      const Canvas canvas = draw(plot);
      // Inside the frame, to the left of the legend: the curve, and a grid that does not cover everything.
      int curve = 0, grid = 0;
      for (int y = 55; y < 525; ++y)
        for (int x = 105; x < 800; ++x)
          curve += canvas.at(x, y) == kFirstColor, grid += is_grid(canvas.at(x, y));
      EXPECT_TRUE(curve > 0 || std::abs(high) < 1e-300)
          << plot.title << ": " << span << " (at 0 it is under the frame)";
      EXPECT_GT(grid, 500) << plot.title << ": " << span;
      EXPECT_LT(grid, 20'000) << plot.title << ": " << span;
    }
  }
}

TEST(L04_Png, StacksOfAnySpanAreDrawn) {
  for (const auto& [low, high] : kSpans) {
    const Canvas by_x = draw(StackPlot{"x", "", "", {{"layer", {}, {1, 2}}}, {"line", {low, high}, {2, 3}}});
    EXPECT_GT(count(by_x, kFirstColor), 1000) << low << " to " << high;
    const Canvas by_y = draw(StackPlot{
        "y", "", "", {{"layer", {}, {low, high}}}, {"line", {0, 1}, {std::abs(low), std::abs(high)}}});
    EXPECT_GT(count(by_y, kInk), 1000) << low << " to " << high << ": the line and the frame";
  }
  draw(StackPlot{"odd", "", "", {{"l", {}, {NAN, kInf, -kInf}}}, {"line", {0, 1, 2}, {kInf, NAN, -kInf}}});
  draw(StackPlot{"odd x", "", "", {{"l", {}, {1, 2, 3}}}, {"line", {NAN, kInf, -kInf}, {1, 2, 3}}});
}

TEST(L02_Png, DecisionMapsOfAnySpanAreDrawn) {
  const auto half = [](double, double) { return 0.5; };
  for (const auto& [low, high] : kSpans) {
    draw(DecisionMap{"both", low, high, low, high, half, {{low, kInf, 1}}});
  }
  draw(
      DecisionMap{"odd", NAN, 1, -kInf, kInf, [](double x, double y) { return x / (y - y); }, {{NAN, 0, 1}}});
}

TEST(L03_Png, ReferencesAndBarsOfAnySizeAreDrawn) {
  for (const double v : {kInf, -kInf, double(NAN), kMax, -kMax, kTiny}) {
    draw(LinePlot{"reference", "", "", {{"s", {0, 1}, {0, 1}}}, {{"r", v}}});
    draw(BarChart{"bars", {{"a", v, ""}, {"b", kTiny, ""}, {"c", 1, ""}}});
  }
}

TEST(L02_Png, TheDecisionMapShowsBothSidesAndTheBoundary) {
  DecisionMap map{"map", -1, 1, -1, 1, [](double x, double) { return x > 0 ? 1.0 : 0.0; }, {{0.5, 0.5, 0}}};
  const Canvas canvas = draw(map);
  const Rgb zero{150, 190, 235}, one{250, 195, 140};
  EXPECT_NEAR(count(canvas, zero), count(canvas, one), 0.05 * count(canvas, one));
  EXPECT_GT(count(canvas, zero), 100000);
  EXPECT_GT(count(canvas, kFirstColor), 5);  // the point
}

TEST_F(L01_PngFile, IsAPngInANewFolder) {
  const std::string file = path("plots/a.png");
  Canvas canvas(3, 2);
  canvas.write_png(file);
  const std::string bytes = read(file);
  ASSERT_GT(bytes.size(), 40u);
  EXPECT_EQ(bytes.substr(0, 16), std::string("\x89PNG\r\n\x1A\n\0\0\0\rIHDR", 16));
  EXPECT_EQ(bytes.substr(16, 10), std::string("\0\0\0\3\0\0\0\2\10\2", 10));  // 3 x 2, 8 bits, RGB
  EXPECT_EQ(bytes.substr(bytes.size() - 8, 4), "IEND");
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ / "plots"), fs::directory_iterator()), 1);
  EXPECT_THROW(canvas.write_png("/dev/null/a.png"), Error);
}

}  // namespace
}  // namespace gradus
