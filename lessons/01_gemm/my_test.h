// Exercise 01.4: your own test of products.
#pragma once
#include <cstdint>

namespace gradus {

using Product = void (*)(int64_t n, const float* a, const float* b, float* c);

// Whether `multiply` computes C = A B for every n and for every earlier content of C. All matrices are (n, n)
// and row-major. `multiply` may add the products of a sum in any order, so each element may have an error of
// n · 2^-24 if all numbers are between -1 and 1.
bool is_a_product(Product multiply);

}  // namespace gradus
