#include "src/io/roofline.h"

#include <algorithm>
#include <cmath>

#include "src/core/table.h"
#include "src/io/plot.h"
#include "src/io/svg.h"

namespace gradus {

namespace {

constexpr double kLeft = 80, kTop = 60, kWidth = 560, kHeight = 360;

// A logarithmic axis between two pixels, from and to powers of ten that enclose all values.
struct LogAxis {
  int low = 0, high = 1;
  double from, to;
  LogAxis(const std::vector<double>& values, double from, double to) : from(from), to(to) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    if (least == values.end()) return;
    low = int(std::floor(std::log10(*least))), high = std::max(int(std::ceil(std::log10(*most))), low + 1);
  }
  double operator()(double v) const { return from + (std::log10(v) - low) / (high - low) * (to - from); }
};

bool has_place(double v) { return std::isfinite(v) && v > 0; }
bool has_roofs(const Roofline& r) { return has_place(r.flops) && has_place(r.bandwidth); }

void draw_roofs(Svg& svg, const Roofline& r, const LogAxis& x, const LogAxis& y) {
  const double ridge = r.flops / r.bandwidth, first = std::pow(10, x.low), last = std::pow(10, x.high);
  const double start = std::max(first, std::pow(10, y.low) / r.bandwidth);
  svg.line(x(start), y(start * r.bandwidth), x(ridge), y(r.flops), kInk, " stroke-width='2'");
  svg.line(x(ridge), y(r.flops), x(last), y(r.flops), kInk, " stroke-width='2'");
  svg.text(x(last), y(r.flops) - 8, number_text(r.flops * 1e-9) + " GFLOP/s", "end");
  svg.text(x(start) + 8, y(start * r.bandwidth) - 14, number_text(r.bandwidth * 1e-9) + " GB/s", "start");
}

}  // namespace

std::string draw(const Roofline& all) {
  Roofline r = all;
  std::erase_if(r.points, [](const auto& p) { return !has_place(p.intensity) || !has_place(p.flops); });
  std::vector<double> across, up;
  for (const Roofline::Point& p : r.points) across.push_back(p.intensity), up.push_back(p.flops);
  if (has_roofs(r)) across.push_back(10 * r.flops / r.bandwidth), up.push_back(r.flops);
  const LogAxis x(across, kLeft, kLeft + kWidth), y(up, kTop + kHeight, kTop);
  Svg svg;
  svg.text(kLeft, 26, r.title, "start", " font-weight='bold' font-size='15'");
  for (int i = x.low; i <= x.high; ++i) {
    svg.line(x(std::pow(10, i)), y.from, x(std::pow(10, i)), y.to, "#e4e4e8");
    svg.text(x(std::pow(10, i)), y.from + 18, Svg::number(std::pow(10, i), 6), "middle");
  }
  for (int i = y.low; i <= y.high; ++i) {
    svg.line(x.from, y(std::pow(10, i)), x.to, y(std::pow(10, i)), "#e4e4e8");
    svg.text(x.from - 8, y(std::pow(10, i)) + 4, Svg::number(std::pow(10, i - 9), 6), "end");
  }
  svg.text(kLeft, kTop - 12, "GFLOP/s", "start", " fill='#66666b'");
  svg.text(kLeft + kWidth / 2, y.from + 40, "FLOPs per byte", "middle", " fill='#66666b'");
  if (has_roofs(r)) draw_roofs(svg, r, x, y);
  double row = kTop + 4, widest = 0;
  for (size_t i = 0; i < r.points.size(); ++i) {
    const Roofline::Point& p = r.points[i];
    const std::string color = "hsl(" + std::string(kHues[i % kHues.size()]) + ",50%)",
                      number = std::to_string(i + 1),
                      name = number + "  " + p.name + "  " + percent_text(p.share);
    svg.put("<circle cx='", x(p.intensity), "' cy='", y(p.flops), "' r='", 4 + 18 * std::sqrt(p.share),
            "' fill='", color, "' fill-opacity='0.6'/>");
    svg.text(x(p.intensity), y(p.flops) + 4, number, "middle", " font-size='11'");
    svg.rect(x.to + 20, row - 6, 12, 12, color);
    svg.text(x.to + 40, row + 4, name, "start");
    widest = std::max(widest, Svg::width_of(name)), row += 20;
  }
  return svg.file(x.to + 60 + widest, std::max(y.from + 56, row + 8));
}

}  // namespace gradus
