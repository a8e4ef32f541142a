#include "src/io/png.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#include <stb/stb_image_write.h>

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "src/io/atomic_file.h"

namespace gradus {

Image::Image(int width, int height) : width_(width), height_(height) {
  check(width > 0 && height > 0 && width <= 1 << 14 && height <= 1 << 14, "image: ", width, " x ", height,
        " pixels; each must be 1 to ", 1 << 14);
  pixels_.assign(size_t(width) * size_t(height) * 3, 255);
}

Rgb Image::at(int x, int y) const {
  check(x >= 0 && x < width_ && y >= 0 && y < height_, "image: no pixel (", x, ", ", y, ")");
  const uint8_t* p = &pixels_[(size_t(y) * size_t(width_) + size_t(x)) * 3];
  return {p[0], p[1], p[2]};
}

void Image::set(int x, int y, Rgb color, double opacity) {
  if (x < 0 || x >= width_ || y < 0 || y >= height_) return;
  uint8_t* p = &pixels_[(size_t(y) * size_t(width_) + size_t(x)) * 3];
  for (int i = 0; i < 3; ++i) p[i] = uint8_t(std::lround(p[i] + opacity * (color[size_t(i)] - p[i])));
}

// The opacity of a pixel near the edge depends on its distance from the edge.
void Image::disc(double x, double y, double radius, Rgb color) {
  const auto bound = [](double v, int limit) { return int(std::clamp(std::floor(v), -1.0, double(limit))); };
  if (!std::isfinite(x + y + radius)) return;
  for (int row = bound(y - radius - 1, height_); row <= bound(y + radius + 1, height_); ++row)
    for (int column = bound(x - radius - 1, width_); column <= bound(x + radius + 1, width_); ++column)
      set(column, row, color, std::clamp(radius + 0.5 - std::hypot(column - x, row - y), 0.0, 1.0));
}

void Image::write_png(const std::string& path) const {
  // stb calls back from C: an exception must not pass through it, so the bytes are collected first.
  std::string bytes;
  const auto collect = [](void* to, void* data, int size) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(data), size_t(size));
  };
  check(stbi_write_png_to_func(collect, &bytes, width_, height_, 3, pixels_.data(), width_ * 3) != 0, path,
        ": encoding the picture failed; not enough memory?");
  write_file(path, bytes);
}

}  // namespace gradus
