// Plots of numbers, as SVG: sharp at every size, on its own background, so that it can be read on light and
// dark pages. draw() returns the text of the file.
#pragma once
#include <array>
#include <string>
#include <vector>

namespace gradus {

// Hue and saturation of the first, second, ... curve or layer, and of each kind of memory wherever it is
// shown (the eleventh is that of rounding), as in CSS's hsl(). The twelfth is the first again.
constexpr std::array<const char*, 11> kHues{"212,62%", "28,80%",  "135,52%", "0,62%",  "270,38%", "0,0%",
                                            "45,85%",  "190,60%", "325,58%", "28,42%", "70,45%"};

struct Series {
  std::string name;
  std::vector<double> x, y;  // points that are not finite are left out
  enum class Marks { Line, Dots, LineAndDots } marks = Marks::Line;
};
struct ReferenceLine {
  std::string name;
  double y = 0;
};
struct LinePlot {
  std::string title, x_label, y_label;  // the labels say the unit
  std::vector<Series> series;
  std::vector<ReferenceLine> references;  // horizontal, dashed
};
// For example loss curves and their floor. With 100 points or more the y axis excludes the highest 1 % of
// them (the first steps of training, which would compress everything else).
std::string draw(const LinePlot& plot);

struct Bar {
  std::string name;
  double value = 0;                // no bar is drawn unless it is finite and above 0
  std::string label;               // written at the bar's end, such as "301 GFLOP/s"
  std::vector<double> parts = {};  // they add up to the value; one per part of the chart
};
struct BarChart {
  std::string title;
  std::vector<Bar> bars;                // horizontal, one under the other, scale from 0
  std::vector<std::string> parts = {};  // names of the parts of bars, if there are any
};
std::string draw(const BarChart& chart);  // e.g. the ladder of GEMMs

struct StackPlot {  // layers on top of each other and a line over them; every value holds until the next
  std::string title, x_label, y_label;
  std::vector<Series> layers;  // from the bottom; all with the x of the line
  Series line;
  struct Panel {
    std::string name;
    double x = 0;  // its middle; the name is written above it, inside the axes
  };
  std::vector<Panel> panels = {};
};
// Where several values share a column of pixels, the column shows those with the highest sum.
std::string draw(const StackPlot& plot);

}  // namespace gradus
