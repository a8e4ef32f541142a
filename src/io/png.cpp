#include "src/io/png.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#include <stb/stb_image_write.h>

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "src/io/atomic_file.h"
#include "src/io/font.h"

namespace gradus {

Canvas::Canvas(int width, int height) : width_(width), height_(height) {
  check(width > 0 && height > 0 && width <= 1 << 14 && height <= 1 << 14, "canvas: ", width, " x ", height,
        " pixels; each must be 1 to ", 1 << 14);
  pixels_.assign(size_t(width) * size_t(height) * 3, 255);
}

Rgb Canvas::at(int x, int y) const {
  check(x >= 0 && x < width_ && y >= 0 && y < height_, "canvas: no pixel (", x, ", ", y, ")");
  const uint8_t* p = &pixels_[(size_t(y) * size_t(width_) + size_t(x)) * 3];
  return {p[0], p[1], p[2]};
}

void Canvas::set(int x, int y, Rgb color, double opacity) {
  if (x < 0 || x >= width_ || y < 0 || y >= height_) return;
  uint8_t* p = &pixels_[(size_t(y) * size_t(width_) + size_t(x)) * 3];
  for (int i = 0; i < 3; ++i) p[i] = uint8_t(std::lround(p[i] + opacity * (color[size_t(i)] - p[i])));
}

void Canvas::fill_rect(int x, int y, int width, int height, Rgb color) {
  // In 64 bits: the lower right corner may lie further out than an int can say.
  const int64_t bottom = std::min<int64_t>(int64_t(y) + height, height_);
  const int64_t right = std::min<int64_t>(int64_t(x) + width, width_);
  for (int row = std::max(y, 0); row < bottom; ++row)
    for (int column = std::max(x, 0); column < right; ++column) set(column, row, color);
}

// Every pixel near the segment is covered by as much as its distance says, which makes the edges smooth.
void Canvas::line(double x0, double y0, double x1, double y1, Rgb color, double thickness) {
  const double dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy, reach = thickness / 2 + 1;
  if (!std::isfinite(length2)) return;
  const auto bound = [](double v, int limit) { return int(std::clamp(std::floor(v), -1.0, double(limit))); };
  const int left = bound(std::min(x0, x1) - reach, width_), right = bound(std::max(x0, x1) + reach, width_);
  const int top = bound(std::min(y0, y1) - reach, height_), bottom = bound(std::max(y0, y1) + reach, height_);
  for (int y = top; y <= bottom; ++y)
    for (int x = left; x <= right; ++x) {
      const double along = length2 > 0 ? std::clamp(((x - x0) * dx + (y - y0) * dy) / length2, 0.0, 1.0) : 0;
      const double distance = std::hypot(x - x0 - along * dx, y - y0 - along * dy);
      set(x, y, color, std::clamp(thickness / 2 + 0.5 - distance, 0.0, 1.0));
    }
}

void Canvas::text(int x, int y, std::string_view s, Rgb color, int scale) {
  for (const char c : s) {
    for (int row = 0; row < kGlyphRows + kTail; ++row)
      for (int column = 0; column < kGlyphColumns; ++column)
        if (glyph_pixel(c, column, row)) fill_rect(x + column * scale, y + row * scale, scale, scale, color);
    x += (kGlyphColumns + 1) * scale;
  }
}

void Canvas::text_upwards(int x, int y, std::string_view s, Rgb color, int scale) {
  for (const char c : s) {
    for (int row = 0; row < kGlyphRows + kTail; ++row)
      for (int column = 0; column < kGlyphColumns; ++column)
        if (glyph_pixel(c, column, row))
          fill_rect(x + row * scale, y - (column + 1) * scale, scale, scale, color);
    y -= (kGlyphColumns + 1) * scale;
  }
}

void Canvas::write_png(const std::string& path) const {
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
