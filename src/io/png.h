// Pictures: a small canvas and the plots of the lessons, written as PNG files with stb_image_write.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gradus {

using Rgb = std::array<uint8_t, 3>;

// A white picture to draw on. x runs right, y runs down, in pixels; what falls outside is cut off.
class Canvas {
 public:
  Canvas(int width, int height);
  int width() const { return width_; }
  int height() const { return height_; }
  Rgb at(int x, int y) const;
  void set(int x, int y, Rgb color, double opacity = 1);
  void fill_rect(int x, int y, int width, int height, Rgb color);
  // With round ends, so that a line of no length is a disc. Coordinates are those of pixel centers.
  void line(double x0, double y0, double x1, double y1, Rgb color, double thickness = 1);
  // Text in a 5x7 font, magnified `scale` times, its upper left corner at (x, y); or running upwards from (x,
  // y).
  void text(int x, int y, std::string_view s, Rgb color, int scale = 2);
  void text_upwards(int x, int y, std::string_view s, Rgb color, int scale = 2);
  static int text_width(std::string_view s, int scale = 2) { return int(s.size()) * 6 * scale - scale; }
  static int text_height(int scale = 2) { return 7 * scale; }
  // Writes the file as a whole or not at all; creates its folder if missing.
  void write_png(const std::string& path) const;

 private:
  int width_, height_;
  std::vector<uint8_t> pixels_;  // rows of r, g, b
};

struct Series {
  std::string name;
  std::vector<double> x, y;  // points that are not finite are left out
};
struct ReferenceLine {
  std::string name;
  double y = 0;
};
struct LinePlot {
  std::string title, x_label, y_label;
  std::vector<Series> series;
  std::vector<ReferenceLine> references;  // horizontal, dashed
};
// E.g. loss curves against the floor. With 100 points or more the y axis leaves out the highest 1 % of them
// (the first steps of training, which would press everything else together).
Canvas draw(const LinePlot& plot);

struct Bar {
  std::string name;
  double value = 0;
  std::string label;  // written at the bar's end, such as "301 GFLOP/s"
};
struct BarChart {
  std::string title;
  std::vector<Bar> bars;  // horizontal, one under the other, scale from 0
};
Canvas draw(const BarChart& chart);  // e.g. the ladder of GEMMs

struct StackPlot {  // layers on top of each other and a line over them; every value holds until the next
  std::string title, x_label, y_label;
  std::vector<Series> layers;  // from the bottom; all with the x of the line
  Series line;
};
// Where several values share a column of pixels, the column shows those with the highest sum.
Canvas draw(const StackPlot& plot);

struct LabelledPoint {
  double x = 0, y = 0;
  int label = 0;  // 0 or 1
};
struct DecisionMap {
  std::string title;
  double x_min = -1, x_max = 1, y_min = -1, y_max = 1;
  // Of label 1, on a grid of 101 x 101 points; shown as color, with the line where it is 0.5.
  std::function<double(double x, double y)> probability;
  std::vector<LabelledPoint> points;
};
Canvas draw(const DecisionMap& map);

}  // namespace gradus
