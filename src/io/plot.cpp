#include "src/io/plot.h"

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "src/io/svg.h"

namespace gradus {
namespace {

std::string color_of(size_t i) { return std::string("hsl(").append(kHues[i % kHues.size()]).append(",42%)"); }
// A step of a path, to the place (x, y).
std::string place(const char* step, double x, double y) {
  return std::string(step).append(Svg::px(x)).append(" ").append(Svg::px(y));
}

constexpr const char *kGrid = "#e4e4e8", *kTitle = " font-weight='bold' font-size='15'",
                     *kLabel = " fill='#66666b'", *kDashed = " stroke-width='2' stroke-dasharray='6 4'";

// A step of 1, 2 or 5 times a power of ten that cuts the range into at most `most` parts.
double tick_step(double range, int most) {
  const double power = std::pow(10, std::floor(std::log10(range / most)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power * most >= range) return factor * power;
  return 10 * power;
}

// Limits v, so that differences of such numbers are finite.
double bounded(double v) { return std::clamp(v, -1e300, 1e300); }

struct Interval {
  double low = INFINITY, high = -INFINITY;
  void include(double v) {
    low = std::min(low, bounded(v)), high = std::max(high, bounded(v));  // ignores NaN
  }
  // With room at both ends, and never empty: a range of a few units in the last place counts as constant.
  Interval padded(double share) const {
    if (low > high) return {0, 1};
    const double largest = std::max(std::abs(low), std::abs(high));
    const bool constant = high - low <= std::max(1e-9 * largest, 1e-300);
    const double room = constant ? std::max(largest, 1.0) / 2 : share * (high - low);
    return {low - room, high + room};
  }
};

// A linear map from an interval of numbers to one of pixels; the result is limited, far outside.
struct Axis : Interval {
  double from = 0, to = 1;
  double operator()(double v) const {
    if (std::isnan(v)) return from;
    return std::clamp(from + (bounded(v) - low) / (high - low) * (to - from), -1e5, 1e5);
  }
  std::vector<double> ticks() const {  // at most nine
    const double step = tick_step(high - low, 8);
    std::vector<double> at;
    for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) at.push_back(i * step);
    return at;
  }
};

struct Entry {  // of the legend
  std::string name, color;
  enum class Look { Line, Dashed, Area } look;
};

// Title, axes, grid and, right of the data, the legend.
struct Frame {
  static constexpr double kWidth = 600, kHeight = 340, kLeft = 72, kTop = 64, kBottom = 56;
  Svg svg;
  Axis x, y;

  Frame(const Interval& wide, const Interval& high)
      : x{wide, kLeft, kLeft + kWidth}, y{high, kTop + kHeight, kTop} {
    svg.put("<clipPath id='frame'><rect x='", kLeft, "' y='", kTop - 2, "' width='", kWidth, "' height='",
            kHeight + 4, "'/></clipPath>");
    for (const double t : x.ticks()) svg.line(x(t), y.from, x(t), y.to, kGrid);
    for (const double t : y.ticks()) svg.line(x.from, y(t), x.to, y(t), kGrid);
    svg.put("<g clip-path='url(#frame)'>");
  }
  std::string finish(const std::string& title, const std::string& x_label, const std::string& y_label,
                     const std::vector<Entry>& legend) {
    svg.put("</g>");
    svg.line(x.from, y.from, x.to, y.from, kInk), svg.line(x.from, y.from, x.from, y.to, kInk);
    for (const double t : x.ticks()) svg.text(x(t), y.from + 18, Svg::number(t, 6), "middle");
    for (const double t : y.ticks()) svg.text(x.from - 8, y(t) + 4, Svg::number(t, 6), "end");
    svg.text(x.from, 26, title, "start", kTitle);
    svg.text(x.from, kTop - 16, y_label, "start", kLabel);
    svg.text((x.from + x.to) / 2, y.from + 42, x_label, "middle", kLabel);
    double widest = 0, row = y.to + 4;
    for (const Entry& e : legend) {
      if (e.look == Entry::Look::Area)
        svg.rect(x.to + 20, row - 6, 26, 12, e.color);
      else
        svg.line(x.to + 20, row, x.to + 46, row, e.color,
                 e.look == Entry::Look::Dashed ? kDashed : " stroke-width='2.5'");
      svg.text(x.to + 54, row + 4, e.name, "start");
      widest = std::max(widest, Svg::width_of(e.name)), row += 22;
    }
    return svg.file(x.to + 70 + widest, std::max(y.from + kBottom, row + 8));
  }
};

bool finite(const Series& s, size_t i) { return std::isfinite(s.x[i]) && std::isfinite(s.y[i]); }

Frame fit_frame(const LinePlot& plot) {
  Interval x, y;
  bool dots = false;  // dots need room at both ends
  std::vector<double> heights;
  for (const Series& s : plot.series) {
    dots = dots || s.marks != Series::Marks::Line;
    check(s.x.size() == s.y.size(), "plot: series ", s.name, " has ", s.x.size(), " x and ", s.y.size(),
          " y");
    for (size_t i = 0; i < s.x.size(); ++i)
      if (finite(s, i)) x.include(s.x[i]), heights.push_back(s.y[i]);
  }
  std::sort(heights.begin(), heights.end());
  heights.resize(heights.size() - heights.size() / 100);
  for (const double h : heights) y.include(h);
  for (const ReferenceLine& r : plot.references) y.include(r.y);
  if (y.low > 0 && y.low < 0.5 * y.high) y.low = 0;  // close enough to 0 to show it
  const Interval high = y.padded(0.05);
  return {x.padded(dots ? 0.03 : 0), {y.low == 0 ? 0 : high.low, high.high}};
}

// Draws a line through the points, interrupted where one is not finite. Of several points in one column of
// pixels only the lowest and the highest are drawn, which looks the same.
void draw_curve(Frame& frame, const Series& s, const std::string& color) {
  std::string steps;
  bool begins = true;
  for (size_t i = 0, end = 0; i < s.x.size(); i = end) {
    end = i + 1;
    if (!finite(s, i)) {
      begins = true;
      continue;
    }
    const double x = frame.x(s.x[i]);
    std::vector<double> heights{frame.y(s.y[i])};
    for (; end < s.x.size() && finite(s, end) && std::abs(frame.x(s.x[end]) - x) < 0.5; ++end)
      heights.push_back(frame.y(s.y[end]));
    const bool alone = begins && (end == s.x.size() || !finite(s, end));
    if (alone || s.marks != Series::Marks::Line)
      for (const double y : heights)
        frame.svg.put("<circle cx='", x, "' cy='", y, "' r='3.5' fill='", color, "'/>");
    const auto [low, high] = std::minmax_element(heights.begin(), heights.end());
    steps.append(place(begins ? "M" : "L", x, *low));
    if (*high != *low) steps.append("V").append(Svg::px(*high));
    begins = false;
  }
  if (s.marks != Series::Marks::Dots && !steps.empty()) frame.svg.path(steps, color);
}

}  // namespace

std::string draw(const LinePlot& plot) {
  Frame frame = fit_frame(plot);
  std::vector<Entry> legend;
  for (const Series& s : plot.series) {
    const std::string color = color_of(legend.size());
    draw_curve(frame, s, color);
    legend.push_back({s.name, color, Entry::Look::Line});
  }
  for (const ReferenceLine& r : plot.references) {
    const std::string color = color_of(legend.size());
    frame.svg.line(frame.x.from, frame.y(r.y), frame.x.to, frame.y(r.y), color, kDashed);
    legend.push_back({r.name + ": " + Svg::number(r.y, 4), color, Entry::Look::Dashed});
  }
  return frame.finish(plot.title, plot.x_label, plot.y_label, legend);
}

std::string draw(const StackPlot& plot) {
  const std::vector<double>& x = plot.line.x;
  check(!x.empty(), "plot: ", plot.title, " has no points");
  Interval times, y;
  times.include(x.front()), times.include(std::max(x.back(), x.front() + 1));
  y.include(0);
  for (const double v : plot.line.y) y.include(v);
  const double room = plot.panels.empty() ? 1.05 : 1.12;  // above the line, also for names
  Frame frame(times.padded(0), {0, room * std::max(y.high, 1e-9)});
  const auto sum_at = [&](size_t i) {
    double sum = 0;
    for (const Series& layer : plot.layers) sum += layer.y[i];
    return sum;
  };
  std::vector<size_t> shown;  // by column of pixels: the point with the highest sum
  for (size_t next = 0, column = 0; column <= size_t(Frame::kWidth); ++column) {
    size_t highest = next > 0 ? next - 1 : 0;  // the previous point, if none falls on the column
    for (bool first = true; next < x.size() && frame.x(x[next]) < frame.x.from + double(column) + 0.5;
         ++next, first = false)
      if (first || sum_at(next) > sum_at(highest)) highest = next;
    shown.push_back(highest);
  }
  // The upper edge of an area of this height, as steps; only where it changes.
  const auto edge = [&](const std::vector<double>& height) {
    std::string steps = place("M", frame.x.from, frame.y(height[shown[0]]));
    for (size_t column = 1; column < shown.size(); ++column)
      if (height[shown[column]] != height[shown[column - 1]])
        steps.append("H")
            .append(Svg::px(frame.x.from + double(column)))
            .append("V")
            .append(Svg::px(frame.y(height[shown[column]])));
    return steps.append("H").append(Svg::px(frame.x.to));
  };
  std::vector<Entry> legend;
  std::vector<double> top(x.size(), 0.0);
  std::vector<std::pair<std::string, std::string>> areas;  // edge and color
  for (size_t layer = 0; layer < plot.layers.size(); ++layer) {
    const std::vector<double>& height = plot.layers[layer].y;
    if (std::none_of(height.begin(), height.end(), [](double v) { return v > 0; })) continue;
    for (size_t i = 0; i < top.size(); ++i) top[i] += height[i];
    areas.emplace_back(edge(top), color_of(layer));
    legend.insert(legend.begin(), {plot.layers[layer].name, color_of(layer), Entry::Look::Area});
  }
  // Each down to the axis, the lower ones over the higher; crisp, so that no higher one shows through.
  frame.svg.put("<g shape-rendering='crispEdges'>");
  for (size_t i = areas.size(); i-- > 0;)
    frame.svg.put("<path d='", areas[i].first, "V", frame.y.from, "H", frame.x.from, "Z' fill='",
                  areas[i].second, "'/>");
  frame.svg.put("</g>");
  frame.svg.path(edge(plot.line.y), kInk);
  for (const StackPlot::Panel& panel : plot.panels)
    frame.svg.text(frame.x(panel.x), Frame::kTop + 20, panel.name, "middle", " font-weight='bold'");
  legend.insert(legend.begin(), {plot.line.name, kInk, Entry::Look::Line});
  return frame.finish(plot.title, plot.x_label, plot.y_label, legend);
}

std::string draw(const BarChart& chart) {
  constexpr double kBar = 22, kRow = 34, kRoom = 480;
  const double top = chart.parts.empty() ? 48 : 72;
  double names = 0, labels = 0, longest = 0, y = top;
  for (const Bar& b : chart.bars) {
    names = std::max(names, Svg::width_of(b.name)), labels = std::max(labels, Svg::width_of(b.label));
    if (std::isfinite(b.value)) longest = std::max(longest, b.value);
  }
  Svg svg;
  const double left = 24 + names;
  svg.text(16, 26, chart.title, "start", kTitle);
  double x = left;
  for (size_t i = 0; i < chart.parts.size(); ++i) {
    svg.rect(x, 40, 12, 12, color_of(i));
    svg.text(x + 17, 50, chart.parts[i], "start");
    x += 35 + Svg::width_of(chart.parts[i]);
  }
  for (const Bar& b : chart.bars) {
    const double length = std::isfinite(b.value) && b.value > 0 ? b.value / longest * kRoom : 0;
    svg.text(left - 8, y + 16, b.name, "end");
    if (length > 0) svg.rect(left, y, length, kBar, color_of(0));
    x = left;
    for (size_t i = 0; i < b.parts.size(); ++i) {
      svg.rect(x, y, b.parts[i] / longest * kRoom, kBar, color_of(i));
      x += b.parts[i] / longest * kRoom;
    }
    svg.text(left + length + 8, y + 16, b.label, "start");
    y += kRow;
  }
  svg.line(left, top - 8, left, y - kRow + kBar + 8, kInk);
  return svg.file(left + kRoom + labels + 24, y + 4);
}

}  // namespace gradus
