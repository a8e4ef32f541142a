// Numbers of lesson 13 that can be checked with a pencil.
#pragma once
#include <ostream>

namespace gradus {

// Two kernels on a machine of 100 GFLOP/s and 10 GB/s: which roof each is under, and how near.
void profile_by_hand(std::ostream& out);

}  // namespace gradus
