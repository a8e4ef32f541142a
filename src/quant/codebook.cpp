#include "src/quant/codebook.h"

#include <algorithm>
#include <numbers>
#include <numeric>

namespace gradus {

// The largest float that is not above x. A float is above x exactly if it is above this result.
static float rounded_down(double x) {
  const float nearest = float(x);
  return double(nearest) > x ? std::nextafter(nearest, -INFINITY) : nearest;
}

// The number of boundaries below t. They are in ascending order, so each comparison rules out half of the
// rest.
static int boundaries_below(const Codebook& codebook, float t) {
  int low = 0, high = codebook.count - 1;  // the answer is in [low, high]
  // BEGIN SOLUTION 10.4
  while (low < high) {
    const int middle = (low + high) / 2;
    if (codebook.boundary[middle] < t)
      low = middle + 1;
    else
      high = middle;
  }
  // STUB: todo("10.4", "halve [low, high] until one answer is left", codebook.boundary, t, low, high);
  // END SOLUTION 10.4
  return low;
}

Codebook listed_codebook(const std::vector<float>& value) {
  Codebook codebook;
  codebook.count = int32_t(value.size());
  check(codebook.count > 0 && codebook.count <= 256, "a codebook of ", codebook.count,
        " values; it must have 1 to 256");
  for (const float v : value)
    check(std::abs(v) <= 1, "a codebook with the value ", v, "; values must be from -1 to 1");
  std::copy(value.begin(), value.end(), codebook.value);
  std::iota(codebook.code, codebook.code + codebook.count, uint8_t(0));
  std::stable_sort(codebook.code, codebook.code + codebook.count,
                   [&](uint8_t a, uint8_t b) { return value[a] < value[b]; });
  check(codebook.count <= 16 || std::is_sorted(value.begin(), value.end()),
        "a codebook of more than 16 values must have them in ascending order");
  std::fill_n(codebook.boundary, 256, NAN);
  for (int i = 0; i + 1 < codebook.count; ++i)
    codebook.boundary[i] =
        rounded_down((double(value[codebook.code[i]]) + double(value[codebook.code[i + 1]])) / 2);
  for (int part = 0; part < 256; ++part)
    codebook.below[part] = uint8_t(boundaries_below(codebook, float(part - 128) / 128));
  return codebook;
}

static Codebook evenly_spaced_codebook(int count, int zero, int last) {
  std::vector<float> value;
  const float step = 1 / float(last - zero);
  for (int code = 0; code < count; ++code) value.push_back(float(code - zero) * step);
  Codebook codebook = listed_codebook(value);
  if (count <= 16) return codebook;  // a lookup is as fast
  codebook.step = step;
  codebook.per_step = float(last - zero);
  codebook.zero = float(zero);
  return codebook;
}
static int codes_of(int bits) {
  check(bits == 4 || bits == 8, "a codebook of ", bits, " bits; it must have 4 or 8");
  return 1 << bits;
}
Codebook absmax_codebook(int bits) {
  const int count = codes_of(bits) - 1;
  return evenly_spaced_codebook(count, count / 2, count - 1);
}
Codebook zero_point_codebook(int bits) {
  return evenly_spaced_codebook(codes_of(bits), 0, codes_of(bits) - 1);
}

Codebook nf4_codebook() {
  return listed_codebook({-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
                          -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
                          0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f,
                          0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
                          0.7229568362236023f, 1.0f});
}

double normal_quantile(double p) {
  check(p > 0 && p < 1, "the normal distribution has no quantile ", p, "; it must be between 0 and 1");
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {  // until low and high are adjacent
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::vector<float> normal_float(double largest_probability) {
  check(largest_probability > 0.5 && largest_probability < 1, "normal_float: the largest probability ",
        largest_probability, " is not between 1/2 and 1");
  std::vector<double> values{0};
  // BEGIN SOLUTION 10.5
  for (const int count : {8, 7})
    for (int i = 0; i < count; ++i) {
      const double x = normal_quantile(largest_probability + (0.5 - largest_probability) * i / count);
      values.push_back(count == 8 ? x : -x);
    }
  // STUB: todo("10.5", "add 8 quantiles above 0 and 7 below", normal_quantile(largest_probability), values);
  // END SOLUTION 10.5
  std::sort(values.begin(), values.end());
  std::vector<float> result;
  for (const double v : values) result.push_back(float(v / values.back()));
  return result;
}

Codebook fp4_codebook() {
  std::vector<float> value;
  for (const float sign : {1.0f, -1.0f})
    for (const float twelfths : {0.0f, 0.0625f, 8.0f, 12.0f, 4.0f, 6.0f, 2.0f, 3.0f})
      value.push_back(twelfths == 0 ? 0 : sign * twelfths / 12);
  return listed_codebook(value);
}

Codebook dynamic_codebook(Sign sign) {
  std::vector<float> value{0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = (sign == Sign::Signed ? 1 : 2) << decade;
    // Rounded as by PyTorch's linspace(0.1, 1): from both ends, with one rounding.
    const float step = 0.9f / float(parts), unit = float(std::pow(10.0, decade - 6));
    const auto end = [&](int i) {
      return i < (parts + 1) / 2 ? std::fma(step, float(i), 0.1f) : std::fma(-step, float(parts - i), 1.0f);
    };
    for (int i = 0; i < parts; ++i) {
      const float mean = unit * ((end(i) + end(i + 1)) / 2);
      value.push_back(mean);
      if (sign == Sign::Signed) value.push_back(-mean);
    }
  }
  std::sort(value.begin(), value.end());
  Codebook codebook = listed_codebook(value);
  codebook.first_decade = sign == Sign::Signed ? 1 : 2;
  return codebook;
}

Codebook second_moment_codebook() {
  Codebook codebook = dynamic_codebook(Sign::Unsigned);
  for (int i = 0; i + 1 < codebook.count; ++i)
    codebook.boundary[i] = std::min(codebook.boundary[i], codebook.value[i] * (1 + 0x1p-4f));
  return codebook;
}

Codebook quantile_codebook(std::vector<float> x, int bits) {
  const int64_t n = int64_t(x.size()), count = codes_of(bits);
  check(n > 0, "quantile_codebook: there are no elements to make a codebook for");
  std::sort(x.begin(), x.end());
  std::vector<float> value;
  for (int64_t part = 0; part < count; ++part) {
    const int64_t begin = std::min(n - 1, n * part / count),
                  end = std::max(begin + 1, n * (part + 1) / count);
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += double(x[size_t(i)]);
    value.push_back(float(sum / double(end - begin)));
  }
  return listed_codebook(value);
}

}  // namespace gradus
