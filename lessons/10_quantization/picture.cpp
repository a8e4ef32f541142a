#include "lessons/10_quantization/picture.h"

#include <algorithm>
#include <cmath>

#include "lessons/10_quantization/formats.h"
#include "src/io/png.h"
#include "src/tensor/context.h"

namespace gradus {

// The brightness of a ball of radius 0.62 around the center, lit from the upper left; x and y go from -1
// to 1.
static float light_on_ball(float x, float y) {
  const float z = std::sqrt(std::max(0.0f, 0.62f * 0.62f - x * x - y * y));
  const float toward_light = (-0.5f * x - 0.6f * y + 0.62f * z) / 0.62f;
  return 1.5f * std::max(toward_light, 0.0f) - 0.55f;
}

std::vector<float> drawn(int width) {
  std::vector<float> image;
  for (int row = 0; row < width; ++row)
    for (int column = 0; column < width; ++column) {
      const float x = 2 * (float(column) + 0.5f) / float(width) - 1,
                  y = 2 * (float(row) + 0.5f) / float(width) - 1;
      const bool ball = x * x + y * y < 0.62f * 0.62f;
      const bool spark = std::abs(x + 0.25f) + std::abs(y + 0.3f) < 0.06f;
      image.push_back(spark ? 6.0f : ball ? light_on_ball(x, y) : 0.35f * y - 0.2f);
    }
  return image;
}

std::vector<Panel> panels(int width) {
  const std::vector<float> image = drawn(width);
  const std::vector<QuantFormat> formats{{"range of fp16", absmax_codebook(4), 4, 0, Range::Given, 65504},
                                         {"absmax", absmax_codebook(4), 4},
                                         {"zero point", zero_point_codebook(4), 4, 0, Range::ZeroPoint},
                                         {"quantile", quantile_codebook(divided_by_absmax(image), 4), 4},
                                         {"absmax, blocks", absmax_codebook(4), 4, 64},
                                         {"FP4, blocks", fp4_codebook(), 4, 64},
                                         {"NF4, blocks", nf4_codebook(), 4, 64}};
  Device& device = current().device;
  const Tensor pixels = from_host(device, image, {width, width}, DType::F32, Kind::Data, "picture");
  std::vector<Panel> result{{"as drawn", image}};
  for (const QuantFormat& format : formats) {
    const Quantizer quantizer(device, format);
    const Tensor back = quantizer.dequantize(quantizer.quantize(pixels), DType::F32);
    result.push_back({format.name, to_host<float>(back)});
  }
  return result;
}

void write_panels(const std::vector<Panel>& panels, int width, const std::string& path) {
  constexpr int kAcross = 4, kGap = 6;
  const int down = (int(panels.size()) + kAcross - 1) / kAcross, step = width + kGap;
  Image image(kAcross * step - kGap, down * step - kGap);
  for (int p = 0; p < int(panels.size()); ++p)
    for (int y = 0; y < width; ++y)
      for (int x = 0; x < width; ++x) {
        const float shade =
            std::clamp(0.5f + 0.5f * panels[size_t(p)].brightness[size_t(y * width + x)], 0.0f, 1.0f);
        const uint8_t gray = uint8_t(std::lround(255 * shade));
        image.set(p % kAcross * step + x, p / kAcross * step + y, {gray, gray, gray});
      }
  image.write_png(path);
}

}  // namespace gradus
