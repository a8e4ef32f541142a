// Pictures of pixels: they contain what is drawn, and the file is a PNG.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/check.h"
#include "src/io/png.h"
#include "tests/folder_testing.h"
#include "tests/io/png_testing.h"

namespace gradus {
namespace {

constexpr Rgb kRed{255, 0, 0}, kBackground{255, 255, 255};

int count(const Image& image, Rgb color) {
  int pixels = 0;
  for (int y = 0; y < image.height(); ++y)
    for (int x = 0; x < image.width(); ++x) pixels += image.at(x, y) == color;
  return pixels;
}

class L01_PngFile : public FolderTest {};

// Every pixel of a file of more than 64 KiB, read back by stb_image.
TEST_F(L01_PngFile, HasEveryPixel) {
  const std::string file = path("a.png");
  for (const auto& [width, height] : std::vector<std::pair<int, int>>{{1, 1}, {3, 2}, {301, 203}}) {
    Image image(width, height);
    uint32_t noise = 1;
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        noise = noise * 1664525 + 1013904223;
        image.set(x, y, {uint8_t(noise >> 24), uint8_t(noise >> 16), uint8_t(x + y)});
      }
    image.write_png(file);
    EXPECT_TRUE(width < 300 || fs::file_size(file) > 65536);
    const PngFile read(file);
    ASSERT_EQ(read.width, width);
    ASSERT_EQ(read.height, height);
    EXPECT_EQ(read.channels, 3);
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) ASSERT_EQ(image.at(x, y), read.at(x, y)) << x << ", " << y;
  }
}

TEST(L01_Png, OpacityMixesAndEdgesAreCutOff) {
  Image image(4, 3);
  image.set(3, 2, {100, 0, 255}, 0.5);
  EXPECT_EQ(image.at(3, 2), (Rgb{178, 128, 255}));
  image.set(0, 0, {100, 0, 255}, 0);
  EXPECT_EQ(image.at(0, 0), kBackground);
  image.set(0, 0, kRed, 1);
  EXPECT_EQ(image.at(0, 0), kRed);
  for (const auto& [x, y] : std::vector<std::pair<int, int>>{{-1, 0}, {4, 0}, {0, -1}, {0, 3}}) {
    image.set(x, y, kRed);
    EXPECT_THROW(image.at(x, y), Error);
  }
  EXPECT_EQ(count(image, kRed), 1);
  EXPECT_EQ(Image(1 << 14, 1).width(), 1 << 14);
  EXPECT_EQ(Image(1, 1 << 14).height(), 1 << 14);
  EXPECT_THROW(Image((1 << 14) + 1, 1), Error);
  EXPECT_THROW(Image(1, (1 << 14) + 1), Error);
  EXPECT_THROW(Image(1, 0), Error);
}

TEST(L01_Png, ADiscIsRoundAndCutOffOutside) {
  Image disc(21, 21);
  disc.disc(10, 10, 3.5, kRed);
  for (int y = 0; y < 21; ++y)
    for (int x = 0; x < 21; ++x) {
      const double distance = std::hypot(x - 10, y - 10);
      EXPECT_TRUE(distance > 3 || disc.at(x, y) == kRed) << x << ", " << y;
      EXPECT_TRUE(distance < 4 || disc.at(x, y) == kBackground) << x << ", " << y;
    }
  Image none(20, 10);
  none.disc(NAN, 0, 5, kRed), none.disc(1, -INFINITY, 5, kRed), none.disc(-1e300, 1e300, 5, kRed);
  none.disc(-9, 5, 8, kRed);
  EXPECT_EQ(count(none, kBackground), 200);
  none.disc(-5, 5, 1e9, kRed);
  EXPECT_EQ(count(none, kRed), 200);
}

}  // namespace
}  // namespace gradus
