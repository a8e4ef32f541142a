// What codes stand for (Codebook): the codebooks of the published formats, and those that are made for given
// data.
#pragma once
#include <vector>

#include "kernels/kernels.h"

namespace gradus {

// Evenly spaced. Absmax: -127/127 to 127/127 (-7/7 to 7/7), code 127 (7) is 0. Zero point: 0/255 (0/15) to 1.
Codebook absmax_codebook(int bits);
Codebook zero_point_codebook(int bits);

// The values stand in the order of their codes, at most 256; if there are more than 16, that is the ascending
// order. An error if one is not from -1 to 1.
Codebook listed_codebook(const std::vector<float>& value);

// NF4 (Dettmers et al. 2023, "QLoRA", app. E): the published table. It was made as normal_float(0.9677083)
// is, which differs from it by no more than 2e-7.
Codebook nf4_codebook();
// 8 quantiles of the normal distribution above 0, 7 below, and 0 itself, divided by the largest: 16 values.
// The largest probability is between 1/2 and 1; NF4 has (29/30 + 31/32) / 2, rounded.
std::vector<float> normal_float(double largest_probability);
double normal_quantile(double p);  // x such that a normal number is below x with probability p; 0 < p < 1

// FP4 as in bitsandbytes: a sign, two bits of exponent, one of mantissa. Codes 0 and 8 are both 0; what is
// nearest to them has code 0 if it is not above 0, as there.
Codebook fp4_codebook();

// The dynamic map (Dettmers et al. 2022, "8-bit optimizers via block-wise quantization", sec. 1.3): seven
// decades from 1e-7 to 1, each with twice as many values as the one below it.
enum class Sign : uint8_t { Signed, Unsigned };
Codebook dynamic_codebook(Sign sign);
// The unsigned one for AdamW's v, rounded up: what is more than 1/16 above a value gets the next code, where
// half way to it is farther. So 0 has the code of 0 alone. With the nearest codes a small v became 0 while
// its m did not, and the next update without a gradient divided m by epsilon alone. And of values that are
// far apart, 0.999 v + 0.001 g^2 stayed v for g up to 29 sqrt(v), while m became g; now it does up to 8
// sqrt(v). A v that is too large makes a step too small, which does no harm. (What is below 2^-150 of the
// scale is 0 in fp32; there m is small beside epsilon.)
Codebook second_moment_codebook();

// Values such that each is the nearest of about as many elements of x: means of 2^bits equal parts of x in
// ascending order (the same paper, sec. 1.2). x is finite and not empty, and has been divided by its absmax.
Codebook quantile_codebook(std::vector<float> x, int bits);

}  // namespace gradus
