// A picture drawn by the program, and what 4 bits a pixel leave of it in several formats.
#pragma once
#include <string>
#include <vector>

#include "src/quant/quantized.h"

namespace gradus {

// The brightness of a lit ball in the dusk, width x width numbers: 0 is a middle gray, most lie within -1 and
// 1, and a spark on the ball is 6.
std::vector<float> drawn(int width);

struct Panel {
  std::string name;
  std::vector<float> brightness;
};
// The picture as it was drawn, and then quantized: each way with 4 bits, all in one or in blocks of 64.
std::vector<Panel> panels(int width);

// Side by side, four in a row.
void write_panels(const std::vector<Panel>& panels, int width, const std::string& path);

}  // namespace gradus
