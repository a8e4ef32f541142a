// Plots of any numbers and names are drawn, or rejected, within the time limit.
#include <cmath>

#include "src/io/plot.h"
#include "tests/fuzz/fuzz.h"

namespace gradus::fuzz {

std::string sample(Rng& rng) { return random_bytes(rng, 300); }

namespace {

// x counts from 0, or has any numbers.
Series series_of(Choices& choices, int64_t points, bool any_x) {
  Series series{choices.text(12), {}, {}};
  for (int64_t i = 0; i < points; ++i) {
    series.x.push_back(any_x ? choices.number() : double(i));
    series.y.push_back(choices.number());
  }
  return series;
}

std::string line_plot(Choices& choices) {
  LinePlot plot{choices.text(30), choices.text(12), choices.text(12), {}, {}};
  const bool any_x = choices.yes();
  for (int64_t n = choices.between(0, 13); n > 0; --n)
    plot.series.push_back(series_of(choices, choices.between(0, choices.yes() ? 3 : 120), any_x));
  for (int64_t n = choices.between(0, 2); n > 0; --n)
    plot.references.push_back({choices.text(12), choices.number()});
  return draw(plot);
}

std::string bar_chart(Choices& choices) {
  BarChart chart{choices.text(30), {}};
  for (int64_t n = choices.between(0, 12); n > 0; --n)
    chart.bars.push_back({choices.text(30), choices.number(), choices.text(30)});
  return draw(chart);
}

std::string stack_plot(Choices& choices) {
  StackPlot plot{choices.text(30), choices.text(12), choices.text(12), {}, {}};
  const int64_t points = choices.between(0, choices.yes() ? 3 : 2000);
  plot.line = series_of(choices, points, false);
  for (int64_t n = choices.between(0, 12); n > 0; --n)
    plot.layers.push_back(series_of(choices, points, false));
  return draw(plot);
}

}  // namespace
}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace gradus::fuzz;
  Choices choices(bytes, size);
  const int64_t kind = choices.between(0, 7);
  try {
    const std::string svg = kind < 4    ? line_plot(choices)
                            : kind == 4 ? bar_chart(choices)
                                        : stack_plot(choices);
    EXPECT_TRUE(svg.ends_with("</svg>\n") && svg.size() < 1'000'000) << svg.size();
  } catch (const gradus::Error&) {  // nothing to draw
  }
  return 0;
}
