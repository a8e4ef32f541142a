// Floating-point formats: their range and precision, computed from their bits, and numbers rounded to them.
#pragma once
#include <ostream>
#include <vector>

#include "kernels/dtype.h"

namespace gradus {

// A pattern of bits, from the left: the sign, the stored exponent, the mantissa (IEEE 754-2019, section 3.4).
struct Format {
  DType dtype;
  int exponent, mantissa;                // bits
  double value(uint32_t pattern) const;  // the number that a pattern represents
  double largest() const;                // the largest finite number
  double smallest_normal() const;        // smaller numbers have fewer digits
  double smallest() const;               // the smallest number above 0, which is subnormal
  double epsilon() const;                // the distance from 1 to the next larger number
};
std::vector<Format> formats();  // fp32, bf16, fp16

// Rounded to the nearest number of type t; between two equally near numbers, to the one whose last bit is 0.
double rounded(double x, DType t);

// A weight of type t after `count` updates, each of which subtracts `update`. Without a master copy, the
// weight is rounded to t after each update. With one, the updates change the master copy, in fp32, and the
// weight is the rounded master copy.
double after_updates(double weight, double update, int64_t count, DType t, bool master_copy);

// Two tables: range and precision of the formats, and some numbers rounded to them.
void print_formats(std::ostream& out);

// Four gradients in fp16, with and without a loss scale; a weight in fp16, with and without a master copy.
void scaling_by_hand(std::ostream& out);

}  // namespace gradus
