// How far a number is from the exact one.
#pragma once
#include <cmath>

namespace gradus {

// In units of the distance from the nearest fp32 number to the next larger magnitude ("ulp").
inline double ulps(float got, double want) {
  const float nearest = std::abs(float(want)), next = std::nextafter(nearest, INFINITY);
  return std::abs(double(got) - want) / (double(next) - double(nearest));
}

}  // namespace gradus
