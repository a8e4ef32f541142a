// The example of lesson 13, small enough to check by hand.
#pragma once
#include <ostream>

namespace gradus {

// Two kernels on a machine of 100 GFLOP/s and 10 GB/s: their least times, and their fractions of the
// roofline.
void profile_by_hand(std::ostream& out);

}  // namespace gradus
