// (b) Weights in 4 bits: bytes, and what it costs to make them numbers within a product.
#pragma once
#include "src/train/report.h"

namespace gradus {

// Of GPT-2's linear layers, in bf16, for B T = 1024: bits an element, the scratch that a product needs, its
// time (forward and dx) beside that of a product whose weights are numbers. On the current context's device.
void four_bits_table(Report& report);

}  // namespace gradus
