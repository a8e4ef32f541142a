// Exercise 01.9: your own test of products.
#pragma once
#include <cstdint>

namespace gradus {

using Product = void (*)(int64_t n, const float* a, const float* b, float* c);

// Does it compute C = A B, all matrices (n, n) and row-major, whatever n is and C held before? Sums may be
// taken in any order, so each element may be off by n · 2^-24 if the numbers are between -1 and 1.
bool is_a_product(Product multiply);

}  // namespace gradus
