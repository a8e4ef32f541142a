// Number formats: a run-time DType, the 16-bit floats, and a visitor that turns a DType into a C++ type.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/check.h"

namespace gradus {

enum class DType : uint8_t { F64, F32, BF16, F16, I64, I32, I8, U8 };

struct DTypeFacts {
  const char* name;
  int64_t bytes;
};
constexpr DTypeFacts facts_of(DType t) {
  switch (t) {
    case DType::F64: return {"fp64", 8};
    case DType::F32: return {"fp32", 4};
    case DType::BF16: return {"bf16", 2};
    case DType::F16: return {"fp16", 2};
    case DType::I64: return {"int64", 8};
    case DType::I32: return {"int32", 4};
    case DType::I8: return {"int8", 1};
    case DType::U8: return {"uint8", 1};
  }
  return {"?", 0};
}
constexpr const char* name_of(DType t) { return facts_of(t).name; }
constexpr int64_t size_of(DType t) { return facts_of(t).bytes; }

// bf16 is the upper half of an fp32: 8 exponent bits, 7 of mantissa. Rounding: to nearest, ties to even.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit constexpr bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = u + 0x7FFF + ((u >> 16) & 1);  // adds half an ulp, less one if even
    const uint32_t quiet_nan = u | 0x400000;                // rounding could carry a NaN into infinity
    bits = uint16_t(((u & 0x7FFFFFFF) > 0x7F800000 ? quiet_nan : rounded) >> 16);
  }
  constexpr operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

// fp16 is IEEE binary16: 5 exponent bits, 10 of mantissa, largest finite value 65504, smallest 2^-24.
// Both directions are straight-line arithmetic on bits (no branches), so that compilers vectorize loops of
// them.
struct fp16 {
  uint16_t bits = 0;
  fp16() = default;
  explicit constexpr fp16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x), sign = u & 0x80000000, mag = u ^ sign;
    // Subnormal results: adding 0.5 puts the fp16 ulp (2^-24) at the fp32 ulp of 0.5, so the adder rounds for
    // us.
    const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(mag) + 0.5f) - 0x3F000000;
    // Normal results: rebias the exponent (127 -> 15) and round to nearest even at bit 13; overflow becomes
    // inf.
    const uint32_t normal = (mag - 0x38000000 + 0xFFF + ((mag >> 13) & 1)) >> 13;
    const uint32_t finite = mag < 0x38800000 ? subnormal : normal;
    const uint32_t big = mag > 0x7F800000 ? (0x7E00 | ((mag >> 13) & 0x3FF)) : 0x7C00;
    bits = uint16_t((sign >> 16) | (mag >= 0x477FF000 ? big : finite));
  }
  constexpr operator float() const {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, mag = bits & 0x7FFF;
    const uint32_t normal = (mag << 13) + 0x38000000;
    const uint32_t special = (mag << 13) | 0x7F800000;
    const uint32_t subnormal = std::bit_cast<uint32_t>(float(int32_t(mag)) * 0x1p-24f);
    return std::bit_cast<float>(sign | (mag >= 0x7C00 ? special : mag >= 0x400 ? normal : subnormal));
  }
};

// The type in which sums are computed: fp64 for fp64, fp32 for all others.
template <class T>
using acc_t = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class A>  // double or float
constexpr DType acc_dtype = sizeof(A) == 8 ? DType::F64 : DType::F32;

// Calls f.template operator()<T>() with the C++ type of a floating dtype; other dtypes are an Error.
template <class F>
auto visit_float(const char* op, DType t, F&& f) {
  switch (t) {
    case DType::F64: return f.template operator()<double>();
    case DType::F32: return f.template operator()<float>();
    case DType::BF16: return f.template operator()<bf16>();
    case DType::F16: return f.template operator()<fp16>();
    default: fail(op, ": dtype ", name_of(t), " is not a floating type; use fp32, bf16 or fp16");
  }
}

}  // namespace gradus
