// The roofline: the FLOP/s that a kernel reaches, over its FLOPs per byte, below the two roofs of a machine.
#pragma once
#include <string>
#include <vector>

namespace gradus {

struct Roofline {
  std::string title;
  double flops, bandwidth;  // the roofs, per second; NaN: none are drawn
  struct Point {
    std::string name;
    double intensity;  // FLOPs per byte
    double flops;      // per second
    double share;      // of the total time; determines the area of the dot
  };
  std::vector<Point> points;
};
// An SVG with logarithmic axes. Points that are not positive and finite are left out. Points are numbered,
// and the legend names them.
std::string draw(const Roofline& picture);

}  // namespace gradus
