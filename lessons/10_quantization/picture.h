// A picture that the program draws, and the same picture quantized to 4 bits per pixel in several formats.
#pragma once
#include <string>
#include <vector>

#include "src/quant/quantized.h"

namespace gradus {

// A lit ball at dusk: width x width brightnesses. 0 is a middle gray, most lie between -1 and 1, and a spark
// on the ball is 6.
std::vector<float> drawn(int width);

struct Panel {
  std::string name;
  std::vector<float> brightness;
};
// The picture as drawn, then quantized and dequantized in seven formats of 4 bits, without blocks and in
// blocks of 64.
std::vector<Panel> panels(int width);

// Writes the panels as one image, four in a row.
void write_panels(const std::vector<Panel>& panels, int width, const std::string& path);

}  // namespace gradus
