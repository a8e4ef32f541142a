// Pictures of pixels, written as PNG files with stb_image_write.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace gradus {

using Rgb = std::array<uint8_t, 3>;

// Initially white. x runs right, y runs down, in pixels; drawing outside has no effect.
class Image {
 public:
  Image(int width, int height);
  int width() const { return width_; }
  int height() const { return height_; }
  Rgb at(int x, int y) const;
  void set(int x, int y, Rgb color, double opacity = 1);
  // A disc with a smooth edge around the center of pixel (x, y).
  void disc(double x, double y, double radius, Rgb color);
  // Writes the file as a whole or not at all; creates its folder if missing.
  void write_png(const std::string& path) const;

 private:
  int width_, height_;
  std::vector<uint8_t> pixels_;  // rows of r, g, b
};

}  // namespace gradus
