#include "lessons/09_mixed_precision/formats.h"

#include <cmath>
#include <cstdio>

#include "src/core/table.h"

namespace gradus {

std::vector<Format> formats() { return {{DType::F32, 8, 23}, {DType::BF16, 8, 7}, {DType::F16, 5, 10}}; }

double Format::value(uint32_t pattern) const {
  const int ones = (1 << exponent) - 1;                      // the largest stored exponent
  const uint32_t digits = pattern & ((1u << mantissa) - 1);  // the stored mantissa
  const int stored = int(pattern >> mantissa) & ones;        // the stored exponent
  const int bias = (1 << (exponent - 1)) - 1;                // the stored exponent of 2^0
  const double sign = pattern >> (exponent + mantissa) ? -1 : 1;
  // BEGIN SOLUTION 09.4
  const double fraction = std::ldexp(digits, -mantissa);
  if (stored == ones) return digits == 0 ? sign * INFINITY : NAN;
  if (stored == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, stored - bias);
  // STUB: todo("09.4", "the number that the pattern represents", ones, digits, stored, bias, sign); return 0;
  // END SOLUTION 09.4
}
double Format::largest() const { return value((((1u << exponent) - 1) << mantissa) - 1); }
double Format::smallest_normal() const { return value(1u << mantissa); }
double Format::smallest() const { return value(1); }
double Format::epsilon() const {
  const uint32_t one = ((1u << (exponent - 1)) - 1) << mantissa;
  return value(one + 1) - value(one);
}

double rounded(double x, DType t) {
  double y = 0;
  visit_float("rounded", t, [&]<class T>() { y = double(acc_t<T>(T(acc_t<T>(x)))); });
  return y;
}

static std::string text_of(double x) {
  char text[32];
  snprintf(text, sizeof text, "%.7g", x);
  return text;
}

// Sign, exponent and mantissa, with spaces between them.
static std::string bits_text(fp16 x) {
  std::string text;
  for (int bit = 15; bit >= 0; --bit) {
    text += (x.bits >> bit & 1) ? '1' : '0';
    if (bit == 15 || bit == 10) text += ' ';
  }
  return text;
}

void print_formats(std::ostream& out) {
  Table table({"format", "bits", "sign bits", "exponent bits", "mantissa bits", "largest", "smallest normal",
               "smallest subnormal", "epsilon"});
  for (const Format& f : formats())
    table.row({name_of(f.dtype), std::to_string(8 * size_of(f.dtype)), "1", std::to_string(f.exponent),
               std::to_string(f.mantissa), number_text(f.largest()), number_text(f.smallest_normal()),
               number_text(f.smallest()), number_text(f.epsilon())});
  Table numbers({"number", "in fp32", "in bf16", "in fp16", "sign, exponent, mantissa in fp16"});
  for (const double x : {1 + 1e-3, 65504.0, 65520.0, 1e-8})
    numbers.row({text_of(x), text_of(rounded(x, DType::F32)), text_of(rounded(x, DType::BF16)),
                 text_of(rounded(x, DType::F16)), bits_text(fp16(float(x)))});
  out << "\n(a) Floating-point formats, and numbers rounded to them\n\n" << table << "\n" << numbers;
}

double after_updates(double weight, double update, int64_t count, DType t, bool master_copy) {
  // BEGIN SOLUTION 09.1
  const DType kept = master_copy ? DType::F32 : t;
  for (int64_t i = 0; i < count; ++i) weight = rounded(weight - update, kept);
  return rounded(weight, t);
  // STUB: todo("09.1", "the weight after all updates", weight, update, count, t, master_copy); return 0;
  // END SOLUTION 09.1
}

void scaling_by_hand(std::ostream& out) {
  constexpr double kScale = 1024;
  const auto half = [](double x) { return rounded(x, DType::F16); };
  Table table({"gradient", "in fp16", "times 1024, in fp16", "then divided by 1024"});
  for (const double g : {2e-8, 1e-7, 0.5, 100.0})
    table.row({number_text(g), number_text(half(g)), number_text(half(kScale * g)),
               number_text(half(kScale * g) / kScale)});
  Table updates({"updates of 0.0002", "weight alone, fp16", "master copy, fp32", "its weight, fp16"});
  for (const int64_t count : {1, 2, 5}) {
    const auto after = [&](DType t, bool master_copy) {
      return number_text(after_updates(1, 0.0002, count, t, master_copy));
    };
    updates.row(
        {std::to_string(count), after(DType::F16, false), after(DType::F32, true), after(DType::F16, true)});
  }
  out << table << "\n" << updates;
}

}  // namespace gradus
