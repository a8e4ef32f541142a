// The number formats, from their bits: what they can hold, and what becomes of a number.
#pragma once
#include <ostream>
#include <vector>

#include "kernels/dtype.h"

namespace gradus {

// A pattern of bits, from the left: the sign, the stored exponent, the mantissa (IEEE 754-2019, section 3.4).
struct Format {
  DType dtype;
  int exponent, mantissa;                // bits
  double value(uint32_t pattern) const;  // the number that a pattern stands for
  double largest() const;                // finite
  double smallest_normal() const;        // below it digits are lost
  double smallest() const;               // above 0
  double epsilon() const;                // from 1 to the next number
};
std::vector<Format> formats();  // fp32, bf16, fp16

double rounded(double x, DType t);  // to the nearest number of that type, of two as near the even one

// Two tables: what the formats can hold, and what becomes of some numbers in them.
void print_formats(std::ostream& out);

// Four gradients in fp16, as they are and multiplied by a loss scale; and an update of a weight.
void scaling_by_hand(std::ostream& out);

}  // namespace gradus
