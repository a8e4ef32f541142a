// The plots of png.h. Each lays out its margins, draws the data, then the frame and the labels over it.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/check.h"
#include "src/io/png.h"

namespace gradus {
namespace {

constexpr Rgb kInk{40, 40, 45}, kGrid{225, 225, 230}, kWhite{255, 255, 255};
constexpr std::array<Rgb, 11> kColors{{{31, 99, 180},
                                       {225, 110, 20},
                                       {40, 140, 60},
                                       {195, 40, 45},
                                       {125, 80, 170},
                                       {90, 90, 90},
                                       {240, 190, 60},
                                       {110, 200, 220},
                                       {225, 140, 190},
                                       {150, 100, 60},
                                       {175, 190, 90}}};

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", v + 0.0);  // -0 becomes 0
  return text;
}

// A step of 1, 2 or 5 times a power of ten that cuts the range into at most `most` parts.
double tick_step(double range, int most) {
  const double power = std::pow(10, std::floor(std::log10(range / most)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power * most >= range) return factor * power;
  return 10 * power;
}

// Numbers whose differences are numbers too; what is larger counts as the largest of them.
double bounded(double v) { return std::clamp(v, -1e300, 1e300); }

struct Range {
  double low = INFINITY, high = -INFINITY;
  void include(double v) {
    low = std::min(low, bounded(v)), high = std::max(high, bounded(v));  // no NaN
  }
  // With room at both ends, and never empty: what spans only units of the last place counts as constant.
  Range padded(double share) const {
    if (low > high) return {0, 1};
    const double largest = std::max(std::abs(low), std::abs(high));
    const bool constant = high - low <= std::max(1e-9 * largest, 1e-300);
    const double room = constant ? std::max(largest, 1.0) / 2 : share * (high - low);
    return {low - room, high + room};
  }
};

// A straight map from an interval of numbers to an interval of pixels; what is far outside stays there.
struct Axis : Range {
  int from = 0, to = 1;
  double operator()(double v) const {
    return std::clamp(from + (bounded(v) - low) / (high - low) * (to - from), -1e6, 1e6);
  }
  int pixel(double v) const { return std::isnan(v) ? from : int(std::lround((*this)(v))); }
  std::vector<double> ticks(int most) const {
    const double step = tick_step(high - low, most);
    std::vector<double> at;
    for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) at.push_back(i * step);
    return at;
  }
};

// The frame, grid and labels shared by the plots with two axes. The data must be drawn between the two calls:
// axes() paints the margins over what has left the frame.
struct Frame {
  static constexpr int kLeft = 100, kRight = 30, kTop = 50, kBottom = 70;
  Canvas& canvas;
  Axis x, y;

  Frame(Canvas& c, const Range& wide, const Range& high, int right = kRight)
      : canvas(c), x{wide, kLeft, c.width() - right}, y{high, c.height() - kBottom, kTop} {}

  void grid() const {
    for (const double t : x.ticks(8)) canvas.line(x(t), y.from, x(t), y.to, kGrid);
    for (const double t : y.ticks(8)) canvas.line(x.from, y(t), x.to, y(t), kGrid);
  }
  void axes(const std::string& title, const std::string& x_label, const std::string& y_label) const {
    const int width = canvas.width(), height = canvas.height();
    canvas.fill_rect(0, 0, width, y.to, kWhite);
    canvas.fill_rect(0, y.from + 1, width, height - y.from, kWhite);
    canvas.fill_rect(0, 0, x.from, height, kWhite);
    canvas.fill_rect(x.to + 1, 0, width - x.to, height, kWhite);
    for (const int edge : {x.from, x.to}) canvas.line(edge, y.from, edge, y.to, kInk);
    for (const int edge : {y.from, y.to}) canvas.line(x.from, edge, x.to, edge, kInk);
    for (const double t : x.ticks(8)) {
      canvas.line(x(t), y.from, x(t), y.from + 5, kInk);
      canvas.text(int(x(t)) - Canvas::text_width(number(t)) / 2, y.from + 12, number(t), kInk);
    }
    for (const double t : y.ticks(8)) {
      canvas.line(x.from - 5, y(t), x.from, y(t), kInk);
      canvas.text(x.from - 12 - Canvas::text_width(number(t)), int(y(t)) - Canvas::text_height() / 2,
                  number(t), kInk);
    }
    canvas.text((x.from + x.to - Canvas::text_width(title)) / 2, 20, title, kInk);
    canvas.text((x.from + x.to - Canvas::text_width(x_label)) / 2, height - 26, x_label, kInk);
    canvas.text_upwards(12, (y.from + y.to + Canvas::text_width(y_label)) / 2, y_label, kInk);
  }
};

// Two that lie close together begin at different points, so that both can be seen.
void dashed_line(Canvas& canvas, double x0, double x1, double y, Rgb color) {
  for (double x = x0; x < x1; x += 16) canvas.line(x, y, std::min(x + 8, x1), y, color, 2);
}

struct LegendEntry {
  std::string name;
  Rgb color;
  bool dashed;
};

enum class Corner : uint8_t { UpperLeft, UpperRight };

void draw_legend(const Frame& frame, const std::vector<LegendEntry>& entries, Corner corner) {
  int width = 0, y = frame.y.to + 16;
  for (const LegendEntry& e : entries) width = std::max(width, Canvas::text_width(e.name) + 60);
  const int left = corner == Corner::UpperLeft ? frame.x.from + 12 : frame.x.to - width - 12;
  const int row = Canvas::text_height() + 10;
  frame.canvas.fill_rect(left, y - 6, width, row * int(entries.size()) + 4, kWhite);
  for (const LegendEntry& e : entries) {
    const double middle = y + Canvas::text_height() / 2;
    if (e.dashed)
      dashed_line(frame.canvas, left + 6, left + 40, middle, e.color);
    else
      frame.canvas.line(left + 6, middle, left + 40, middle, e.color, 3);
    frame.canvas.text(left + 50, y, e.name, kInk);
    y += row;
  }
}

bool finite(const Series& s, size_t i) { return std::isfinite(s.x[i]) && std::isfinite(s.y[i]); }

Frame fit_frame(Canvas& canvas, const LinePlot& plot) {
  Range x, y;
  std::vector<double> heights;
  for (const Series& s : plot.series) {
    check(s.x.size() == s.y.size(), "plot: series ", s.name, " has ", s.x.size(), " x and ", s.y.size(),
          " y");
    for (size_t i = 0; i < s.x.size(); ++i)
      if (finite(s, i)) x.include(s.x[i]), heights.push_back(s.y[i]);
  }
  std::sort(heights.begin(), heights.end());
  heights.resize(heights.size() - heights.size() / 100);
  for (const double h : heights) y.include(h);
  for (const ReferenceLine& r : plot.references) y.include(r.y);
  if (y.low > 0 && y.low < 0.5 * y.high) y.low = 0;  // near enough to show the zero
  const Range high = y.padded(0.05);
  return Frame(canvas, x.padded(0), {y.low == 0 ? 0 : high.low, high.high});
}

}  // namespace

Canvas draw(const LinePlot& plot) {
  Canvas canvas(960, 600);
  const Frame frame = fit_frame(canvas, plot);
  frame.grid();
  std::vector<LegendEntry> legend;
  for (const Series& s : plot.series) {
    const Rgb color = kColors[legend.size() % kColors.size()];
    for (size_t i = 0; i < s.x.size(); ++i) {
      const size_t before = i > 0 && finite(s, i - 1) ? i - 1 : i;  // a point alone is a dot
      if (finite(s, i))
        canvas.line(frame.x(s.x[before]), frame.y(s.y[before]), frame.x(s.x[i]), frame.y(s.y[i]), color, 1.6);
    }
    legend.push_back({s.name, color, false});
  }
  for (const ReferenceLine& r : plot.references) {
    const Rgb color = kColors[legend.size() % kColors.size()];
    dashed_line(canvas, frame.x.from + 8.0 * double(legend.size() % 2), frame.x.to, frame.y(r.y), color);
    legend.push_back({r.name + ": " + number(r.y), color, true});
  }
  frame.axes(plot.title, plot.x_label, plot.y_label);
  const auto rises = [](const Series& s) { return !s.y.empty() && s.y.back() > s.y.front(); };
  const bool rising = std::all_of(plot.series.begin(), plot.series.end(), rises);
  draw_legend(frame, legend, rising ? Corner::UpperLeft : Corner::UpperRight);  // where there is no curve
  return canvas;
}

Canvas draw(const StackPlot& plot) {
  constexpr int kLegend = 190;
  const std::vector<double>& x = plot.line.x;
  check(!x.empty(), "plot: ", plot.title, " has no points");
  Range time, y;
  time.include(x.front()), time.include(std::max(x.back(), x.front() + 1));
  y.include(0);
  for (const double v : plot.line.y) y.include(v);
  Canvas canvas(960 + kLegend, 600);
  const Frame frame(canvas, time.padded(0), {0, 1.05 * std::max(y.high, 1e-9)}, Frame::kRight + kLegend);
  const auto sum_at = [&](size_t i) {
    double sum = 0;
    for (const Series& layer : plot.layers) sum += layer.y[i];
    return sum;
  };
  frame.grid();
  size_t next = 0;
  // Each column shows one point: of those that fall on it, the one with the highest sum.
  for (int column = frame.x.from, last_top = frame.y.from; column <= frame.x.to; ++column) {
    size_t highest = next > 0 ? next - 1 : 0;  // what holds from before, if nothing new falls on the column
    for (bool first = true; next < x.size() && frame.x(x[next]) < column + 0.5; ++next, first = false)
      if (first || sum_at(next) > sum_at(highest)) highest = next;
    double bottom = 0;
    for (size_t layer = 0; layer < plot.layers.size(); ++layer) {
      const double top = bottom + plot.layers[layer].y[highest];
      const int from = frame.y.pixel(top), to = frame.y.pixel(bottom);
      canvas.fill_rect(column, from, 1, to - from, kColors[layer % kColors.size()]);
      bottom = top;
    }
    const int top = frame.y.pixel(plot.line.y[highest]);
    canvas.fill_rect(column, top - 1, 1, 2, kInk);
    // Rising before the column, falling on it: where there is no layer to be hidden.
    canvas.fill_rect(top < last_top ? column - 1 : column, std::min(top, last_top) - 1, 1,
                     std::abs(top - last_top) + 2, kInk);
    last_top = top;
  }
  frame.axes(plot.title, plot.x_label, plot.y_label);
  int row = frame.y.to;
  const auto entry = [&](const std::string& name, Rgb color, int height) {
    canvas.fill_rect(frame.x.to + 16, row + (14 - height) / 2, 24, height, color);
    canvas.text(frame.x.to + 50, row, name, kInk);
    row += 24;
  };
  entry(plot.line.name, kInk, 2);
  for (size_t layer = plot.layers.size(); layer-- > 0;)
    if (std::any_of(plot.layers[layer].y.begin(), plot.layers[layer].y.end(), [](double v) { return v > 0; }))
      entry(plot.layers[layer].name, kColors[layer % kColors.size()], 14);
  return canvas;
}

Canvas draw(const BarChart& chart) {
  constexpr int kBar = 26, kGap = 16, kTop = 60;
  int name_width = 0, label_width = 0;
  double longest = 0;
  for (const Bar& b : chart.bars) {
    name_width = std::max(name_width, Canvas::text_width(b.name));
    label_width = std::max(label_width, Canvas::text_width(b.label));
    if (std::isfinite(b.value)) longest = std::max(longest, b.value);
  }
  Canvas canvas(960, kTop + int(chart.bars.size()) * (kBar + kGap) + 20);
  const int left = name_width + 40, room = std::max(canvas.width() - left - label_width - 40, 50);
  canvas.text((canvas.width() - Canvas::text_width(chart.title)) / 2, 20, chart.title, kInk);
  int y = kTop;
  for (const Bar& b : chart.bars) {
    const bool drawable = std::isfinite(b.value) && b.value > 0;
    const int length = drawable ? int(std::lround(b.value / longest * room)) : 0,
              text_y = y + (kBar - 14) / 2;
    canvas.text(left - 14 - Canvas::text_width(b.name), text_y, b.name, kInk);
    canvas.fill_rect(left, y, length, kBar, kColors[0]);
    canvas.text(left + length + 12, text_y, b.label, kInk);
    y += kBar + kGap;
  }
  canvas.line(left - 1, kTop - 8, left - 1, y - kGap + 8, kInk, 2);
  return canvas;
}

Canvas draw(const DecisionMap& map) {
  constexpr int kCells = 100;
  constexpr Rgb kZero{150, 190, 235}, kOne{250, 195, 140};  // light shades of the points' colors
  Canvas canvas(Frame::kLeft + 600 + Frame::kRight, Frame::kTop + 600 + Frame::kBottom);
  Range across, up;
  across.include(map.x_min), across.include(map.x_max), up.include(map.y_min), up.include(map.y_max);
  const Frame frame(canvas, across.padded(0), up.padded(0));
  std::vector<double> p;  // (kCells + 1)^2 values, row by row from y_min
  for (int i = 0; i <= kCells; ++i)
    for (int j = 0; j <= kCells; ++j)
      p.push_back(map.probability(std::lerp(frame.x.low, frame.x.high, double(j) / kCells),
                                  std::lerp(frame.y.low, frame.y.high, double(i) / kCells)));
  const auto at = [&](int x, int y) {  // between the grid's points: bilinear
    const double u = double(x - frame.x.from) / (frame.x.to - frame.x.from) * kCells;
    const double v = double(y - frame.y.from) / (frame.y.to - frame.y.from) * kCells;
    const int j = std::min(int(u), kCells - 1), i = std::min(int(v), kCells - 1);
    const double* row = &p[size_t(i * (kCells + 1) + j)];
    const double* next = row + kCells + 1;
    return std::lerp(std::lerp(row[0], row[1], u - j), std::lerp(next[0], next[1], u - j), v - i);
  };
  for (int y = frame.y.to; y < frame.y.from; ++y)
    for (int x = frame.x.from; x < frame.x.to; ++x) {
      const double here = at(x, y);
      canvas.set(x, y, kZero);
      canvas.set(x, y, kOne, std::clamp(here, 0.0, 1.0));
      if ((here < 0.5) != (at(x + 1, y) < 0.5) || (here < 0.5) != (at(x, y + 1) < 0.5))
        canvas.line(x, y, x, y, kInk, 2.5);
    }
  for (const LabelledPoint& point : map.points) {
    canvas.line(frame.x(point.x), frame.y(point.y), frame.x(point.x), frame.y(point.y), kWhite, 8);
    canvas.line(frame.x(point.x), frame.y(point.y), frame.x(point.x), frame.y(point.y),
                kColors[point.label == 1 ? 1 : 0], 6);
  }
  frame.axes(map.title, "x", "y");
  return canvas;
}

}  // namespace gradus
