// The larger of two numbers; unlike std::max it keeps a NaN.
#pragma once
#include <cmath>

namespace gradus {

// NaN if a or b is NaN.
inline double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

}  // namespace gradus
