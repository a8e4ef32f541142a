// The roofline: what a kernel reaches, over how much it computes with each byte that it moves, under the two
// roofs of a machine.
#pragma once
#include <string>
#include <vector>

namespace gradus {

struct Roofline {
  std::string title;
  double flops, bandwidth;  // the roofs, a second; NaN: none are drawn
  struct Point {
    std::string name;
    double intensity;  // FLOPs per byte
    double flops;      // a second
    double share;      // of the time of all: the area of its dot
  };
  std::vector<Point> points;
};
// An SVG. Points that have no place on it are left out. Both axes are logarithmic; points are numbered, and
// the legend names them.
std::string draw(const Roofline& picture);

}  // namespace gradus
