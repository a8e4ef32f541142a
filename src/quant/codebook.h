// Codebooks, which say what value each code stands for: those of the published formats, and those that are
// computed from given data.
#pragma once
#include <vector>

#include "kernels/kernels.h"

namespace gradus {

// Evenly spaced. Absmax: -127/127 to 127/127 (-7/7 to 7/7), code 127 (7) is 0. Zero point: 0/255 (0/15) to 1.
Codebook absmax_codebook(int bits);
Codebook zero_point_codebook(int bits);

// A codebook of at most 256 values in the order of their codes; if there are more than 16, this must be the
// ascending order. An error if a value is not from -1 to 1.
Codebook listed_codebook(const std::vector<float>& value);

// NF4 (Dettmers et al. 2023, "QLoRA", app. E): the published table. normal_float(0.9677083), the method by
// which it was computed, differs from it by at most 2e-7.
Codebook nf4_codebook();
// 8 quantiles of the normal distribution above 0, 7 below, and 0 itself, divided by the largest: 16 values.
// The largest probability is between 1/2 and 1; for NF4 it is (29/30 + 31/32) / 2, rounded.
std::vector<float> normal_float(double largest_probability);
double normal_quantile(double p);  // x such that a normal number is below x with probability p; 0 < p < 1

// FP4 as in bitsandbytes: a sign, two bits of exponent, one of mantissa. Codes 0 and 8 both stand for 0. As
// there, an element that is nearest to 0 gets code 0 if it is not above 0, else code 8.
Codebook fp4_codebook();

// The dynamic codebook (elsewhere: dynamic map; Dettmers et al. 2022, "8-bit optimizers via block-wise
// quantization", sec. 1.3): seven decades from 1e-7 to 1, each with twice as many values as the one below it.
enum class Sign : uint8_t { Signed, Unsigned };
Codebook dynamic_codebook(Sign sign);
// The unsigned dynamic codebook for AdamW's v, rounded up: an element that is more than 1/16 above a value
// gets the next code, even if the value is nearer. So only 0 has the code of 0. With the nearest codes, a
// small v became 0 although its m did not, and the next update without a gradient divided m by epsilon alone.
// And where values are far apart, 0.999 v + 0.001 g^2 kept the code of v for g up to 29 sqrt(v), although m
// became g; with this codebook only up to 8 sqrt(v). A v that is too large makes the step too small, which
// does no harm. (An element below 2^-150 of the scale is 0 in fp32; there m is small compared with epsilon.)
Codebook second_moment_codebook();

// The means of 2^bits equal parts of x in ascending order, so that each value is the nearest one for about as
// many elements of x (the same paper, sec. 1.2). x must be finite and not empty, and divided by its absmax.
Codebook quantile_codebook(std::vector<float> x, int bits);

}  // namespace gradus
