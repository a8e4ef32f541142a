// The worst of many numbers, where std::max would lose a NaN.
#pragma once
#include <cmath>

namespace gradus {

// The larger of two; NaN if one of them is.
inline double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

}  // namespace gradus
