// Reads a PNG file with stb_image. Include this in one file of a test program only.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/io/png.h"

#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_PNG
#include <stb/stb_image.h>

namespace gradus {

struct PngFile {
  int width = 0, height = 0, channels = 0;
  std::vector<uint8_t> bytes;  // rows of r, g, b

  explicit PngFile(const std::string& path) {
    uint8_t* const read = stbi_load(path.c_str(), &width, &height, &channels, 3);
    EXPECT_NE(read, nullptr) << stbi_failure_reason();
    if (read) bytes.assign(read, read + size_t(3) * size_t(width) * size_t(height));
    stbi_image_free(read);
  }
  Rgb at(int x, int y) const {
    const uint8_t* const p = &bytes.at(size_t(3 * (y * width + x)));
    return {p[0], p[1], p[2]};
  }
};

}  // namespace gradus
