// What quantization does to AdamW's states, and to the step that comes of them.
#pragma once
#include <map>

#include "lessons/11_adam8bit/formats.h"
#include "src/train/report.h"

namespace gradus {

double adam_step(float m, float v);  // m / (sqrt(v) + eps): an update, but for rate and bias correction

// Over all elements of the tensors that would be kept in 8 bits.
struct StateDamage {
  double m = 0, v = 0;   // mean |x - x'| / mean |x|
  double v_is_zero = 0;  // share of the elements whose v is above 0, and comes back as 0
  // Of the step s = m / (sqrt(v) + eps):
  double doubled = 0;       // share of those of which |s'| is more than 2 |s|
  double largest_step = 0;  // the largest |s'|, divided by the largest |s|
};
// m and v: a tensor each, which are as AdamW left them.
using Moments = std::vector<std::pair<std::vector<float>, std::vector<float>>>;
StateDamage state_damage(const StateFormat& format, const Moments& moments);

// (b) Of the states that training in fp32 has left, by the format's name; and the checks of it.
std::map<std::string, StateDamage> damage_table(const Moments& moments);
void check_damage(const std::map<std::string, StateDamage>& all, Report& report);

// The page's small example.
void adam8bit_by_hand(std::ostream& out);

}  // namespace gradus
