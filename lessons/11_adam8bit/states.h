// The quantization errors of AdamW's states, and how they change the step.
#pragma once
#include <map>

#include "lessons/11_adam8bit/formats.h"
#include "src/train/report.h"

namespace gradus {

double adam_step(float m, float v);  // m / (sqrt(v) + eps): without learning rate and bias correction

// Over all elements of the tensors whose states AdamW8bit keeps in 8 bits.
struct StateErrors {
  double m = 0, v = 0;   // mean |x - x'| / mean |x|
  double v_is_zero = 0;  // of the elements with v > 0: the share whose dequantized v is 0
  // Of the step s = adam_step(m, v), and s' of the dequantized m and v:
  double doubled = 0;       // share of the elements with |s'| > 2 |s|
  double largest_step = 0;  // the largest |s'| / the largest |s|
};
// Of each tensor: m and v, as AdamW left them.
using Moments = std::vector<std::pair<std::vector<float>, std::vector<float>>>;
StateErrors state_errors(const StateFormat& format, const Moments& moments);

// (b) The states at the end of training in fp32, quantized in each format: the errors by the format's name,
// and their checks.
std::map<std::string, StateErrors> error_table(const Moments& moments);
void check_errors(const std::map<std::string, StateErrors>& all, Report& report);

// The small example of the page.
void adam8bit_by_hand(std::ostream& out);

}  // namespace gradus
