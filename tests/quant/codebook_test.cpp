// The codebooks compared with the published tables (bitsandbytes 0.50.2: tests/golden/make_quantization.py)
// and with their papers, and the boundaries of each compared with its values.
#include "src/quant/codebook.h"

#include <set>

#include "src/core/rng.h"
#include "tests/kernels/quantize_testing.h"
#include "tests/mistakes.h"
#include "tests/nn/golden_testing.h"

namespace gradus {
namespace {

std::vector<double> values_of(const Codebook& codebook) {
  return {codebook.value, codebook.value + codebook.count};
}

std::map<std::string, Codebook> all_codebooks() {
  std::vector<float> spread;
  for (int i = -500; i <= 500; ++i) spread.push_back(float(i * i * i) / 125e6f);
  return {{"absmax 8", absmax_codebook(8)},
          {"absmax 4", absmax_codebook(4)},
          {"zero point 8", zero_point_codebook(8)},
          {"zero point 4", zero_point_codebook(4)},
          {"nf4", nf4_codebook()},
          {"fp4", fp4_codebook()},
          {"dynamic signed", dynamic_codebook(Sign::Signed)},
          {"dynamic unsigned", dynamic_codebook(Sign::Unsigned)},
          {"quantile 8", quantile_codebook(spread, 8)},
          {"quantile 4", quantile_codebook(spread, 4)},
          {"crowded", listed_codebook({-1, 0.5f, 0.5005f, 0.501f, 0.5015f, 1})}};
}

TEST(L10_Codebook, ThoseOfBitsandbytesToTheBit) {
  Context context("cpu");
  Golden file("tests/golden/quantization.safetensors");
  EXPECT_EQ(values_of(nf4_codebook()), file.read("book.nf4", {16}));
  EXPECT_EQ(values_of(fp4_codebook()), file.read("book.fp4", {16}));
  EXPECT_EQ(values_of(dynamic_codebook(Sign::Signed)), file.read("book.dynamic_signed", {256}));
  EXPECT_EQ(values_of(dynamic_codebook(Sign::Unsigned)), file.read("book.dynamic_unsigned", {256}));
}

// reference-numbers (d.1). The fourth signed value differs in the last bit from PyTorch 2.15, whose linspace
// rounds once.
TEST(L10_Codebook, TheDynamicMapsPublishedValues) {
  const std::vector<double> s = values_of(dynamic_codebook(Sign::Signed)),
                            u = values_of(dynamic_codebook(Sign::Unsigned));
  EXPECT_EQ(s[0], -0.992968738079071);
  EXPECT_EQ(s[127], 0);
  EXPECT_EQ(s[128], 5.500000384017767e-07);
  EXPECT_EQ(s[129], 3.250000190746505e-06);
  EXPECT_EQ(s[130], 7.749999895168003e-06);
  EXPECT_NEAR(s[131], 2.1249999917927198e-05, 2.1e-5 * 0x1p-23);
  EXPECT_EQ(s[255], 1);
  EXPECT_EQ(u[0], 0);
  EXPECT_EQ(u[1], 3.2500003044333425e-07);
  EXPECT_EQ(u[2], 7.749999895168003e-07);
  EXPECT_EQ(u[255], 1);
}

TEST(L10_Codebook, NF4IsMadeOfQuantiles) {
  RecordProperty("exercise", "10.5");
  Context context("cpu");
  const std::vector<double> table = Golden("tests/golden/quantization.safetensors").read("book.nf4", {16});
  const std::vector<float> made = normal_float(0.9677083);
  ASSERT_EQ(made.size(), 16u);
  double worst = 0;
  for (size_t i = 0; i < 16; ++i) {
    worst = std::max(worst, std::abs(double(made[i]) - table[i]));
    EXPECT_NEAR(made[i], table[i], 2e-7) << "code " << i;
  }
  EXPECT_GT(worst, 0) << "the values must be computed, not copied from the table";
  std::string signs;
  for (const float v : made) signs += std::abs(v) < 1e-6f ? '0' : v < 0 ? '-' : '+';
  EXPECT_EQ(signs, "-------0++++++++") << usual_mistake(
      {{signs == "------000+++++++", "three values are 0: do the steps of both sides end before 1/2?"},
       {signs == "--------0+++++++", "8 values are below 0 and 7 above: which side has one more?"}});
  RecordProperty("largest difference", std::to_string(worst));
  const std::vector<float> narrow = normal_float(0.75);  // other offsets give other values
  EXPECT_NEAR(narrow[15], 1, 0);
  EXPECT_NEAR(narrow[8], normal_quantile(0.75 - 0.25 * 7 / 8) / normal_quantile(0.75), 1e-7);
  EXPECT_NEAR(narrow[6], -normal_quantile(0.75 - 0.25 * 6 / 7) / normal_quantile(0.75), 1e-7);
  EXPECT_EQ(narrow[7], 0);
}

TEST(L10_Codebook, QuantilesOfTheNormalDistribution) {
  EXPECT_NEAR(normal_quantile(0.5), 0, 1e-15);
  EXPECT_NEAR(normal_quantile(0.6), 0.2533471031357997, 1e-14);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-14);
  EXPECT_NEAR(normal_quantile(0.025), -1.959963984540054, 1e-14);
  EXPECT_NEAR(normal_quantile(1e-30), -11.464024688443613, 1e-9);
  EXPECT_NEAR(normal_quantile(1e-12), -7.034483825301131, 1e-9);
  for (const double p : {0.0, 1.0, -0.1, 1.1, double(NAN)})
    expect_refused("quantile", [&] { normal_quantile(p); });
  for (const double offset : {0.5, 1.0, 0.2, double(NAN)})
    expect_refused("largest probability", [&] { normal_float(offset); });
}

TEST(L10_Codebook, EvenlySpacedOnes) {
  for (const int bits : {8, 4}) {
    const int last = bits == 8 ? 254 : 14;
    const Codebook absmax = absmax_codebook(bits), zero = zero_point_codebook(bits);
    EXPECT_EQ(absmax.count, last + 1);
    EXPECT_EQ(absmax.value[0], -1);
    EXPECT_EQ(absmax.value[last / 2], 0);
    EXPECT_EQ(absmax.value[last], 1);
    EXPECT_EQ(zero.count, last + 2);
    EXPECT_EQ(zero.value[0], 0);
    EXPECT_EQ(zero.value[last + 1], 1);
    for (int c = 0; c < absmax.count; ++c)
      EXPECT_NEAR(absmax.value[c], double(c - last / 2) / (last / 2), 1e-7) << c;
    for (int c = 0; c < zero.count; ++c) EXPECT_NEAR(zero.value[c], double(c) / (last + 1), 1e-7) << c;
  }
  expect_refused("a codebook of 5 bits", [] { absmax_codebook(5); });
  expect_refused("a codebook of 16 bits", [] { zero_point_codebook(16); });
}

// Compares the value that the codebook finds with the nearest one of all values: at the boundaries, one float
// below and above them, at the values, at random numbers, and beyond the ends.
TEST(L10_Codebook, TheNearestValueOfAnyNumber) {
  RecordProperty("exercise", "10.4");
  Rng rng(1, 1);
  for (const auto& [name, codebook] : all_codebooks()) {
    std::vector<float> numbers{INFINITY, -INFINITY, 0,       -0.0f,     1,          -1,    1.5f,
                               -1.5f,    1e-30f,    -1e-30f, 0x1p-149f, -0x1p-149f, 3e38f, -3e38f};
    for (int i = 0; i < codebook.count; ++i) numbers.push_back(codebook.value[i]);
    for (int i = 0; i + 1 < codebook.count; ++i)
      for (const float direction : {-2.0f, 2.0f}) {
        numbers.push_back(codebook.boundary[i]);
        numbers.push_back(std::nextafter(codebook.boundary[i], direction));
      }
    for (int i = 0; i < 3000; ++i)
      numbers.push_back(float(rng.normal() * std::pow(10.0, -6.0 * rng.uniform())));
    for (const float t : numbers) {
      double best = INFINITY;
      for (int c = 0; c < codebook.count; ++c)
        best = std::min(best, std::abs(double(t) - double(codebook.value[c])));
      const int code = nearest_code(codebook, t);
      ASSERT_LT(code, codebook.count) << name;
      // Evenly spaced codebooks multiply, which rounds.
      ASSERT_LE(std::abs(double(t) - double(codebook.value[code])), best + (codebook.step > 0 ? 2e-7 : 0))
          << name << ": " << t << " became code " << code << ", " << codebook.value[code];
    }
  }
}

// In ascending order, the search never begins after the nearest value. In a dynamic codebook it begins at
// most one value before it, because its kernels compare no further.
TEST(L10_Codebook, TheSearchBeginsCloseBelow) {
  for (const auto& [name, codebook] : all_codebooks()) {
    if (codebook.step > 0) continue;
    const bool dynamic = name.starts_with("dynamic");
    EXPECT_EQ(codebook.first_decade > 0, dynamic) << name;
    std::vector<float> numbers = telling_numbers(codebook);
    numbers.insert(numbers.end(), {INFINITY, -INFINITY});
    for (const float t : numbers) {
      const int start = search_start(codebook, t), place = boundaries_below(codebook, t);
      ASSERT_LE(start, place) << name << ": " << t;
      if (dynamic) {
        ASSERT_GE(start, place - 1) << name << ": " << t;
      }
      ASSERT_EQ(nearest_code(codebook, t), codebook.code[place]) << name << ": " << t;
    }
    EXPECT_LT(nearest_code(codebook, NAN), codebook.count) << name;
  }
}

// Codebook::below: the number of boundaries below each of 256 equal parts of [-1, 1].
TEST(L10_Codebook, BoundariesBelowEachPart) {
  RecordProperty("exercise", "10.4");
  const Codebook five = listed_codebook({-1, -0.5f, 0, 0.5f, 1});
  std::string found;
  for (const int part : {0, 64, 128, 192, 255}) found += std::to_string(five.below[part]);
  EXPECT_EQ(found, "01234") << usual_mistake(
      {{found == "01134",
        "0 is found below a boundary that it is above: which answers does one step rule out?"},
       {found == "44400", "small numbers get the largest code: in which half does the search continue?"}});
  for (const auto& [name, codebook] : all_codebooks())
    for (int part = 0; part < 256; ++part)
      ASSERT_EQ(codebook.below[part], boundaries_below(codebook, float(part - 128) / 128))
          << name << ": " << part;
}

// As the dynamic codebook, but a number more than 1/16 above a value has the next code, so only 0 has code 0.
TEST(L11_Codebook, SecondMomentsAreRoundedUp) {
  const Codebook codebook = second_moment_codebook(), nearest = dynamic_codebook(Sign::Unsigned);
  EXPECT_EQ(values_of(codebook), values_of(nearest));
  for (const float t : telling_numbers(codebook))
    ASSERT_LE(nearest_code(codebook, t), search_start(codebook, t) + 1)
        << t << ": kernels compare only one more boundary";
  for (const float t : {0.0f, -0.0f, -0x1p-149f, -1e-7f, -1.0f, -INFINITY, NAN})
    EXPECT_EQ(nearest_code(codebook, t), 0) << t;
  int other = 0;
  const auto expect_code = [&](float t) {
    const int code = nearest_code(codebook, t), near = nearest_code(nearest, t);
    const bool up = near < 255 && t > codebook.value[near] * (1 + 1 / 16.0f);
    ASSERT_EQ(code, near + up) << t;
    other += up;
  };
  for (uint32_t upper = 0; upper < 0x7F80; ++upper)  // numbers from 0 on
    for (const uint32_t lower : {0, 1, 0x7FFF, 0xFFFF})
      expect_code(std::bit_cast<float>(upper << 16 | lower));
  for (int i = 0; i < 255; ++i)
    for (const float boundary : {codebook.boundary[i], nearest.boundary[i], codebook.value[i]})
      for (const float t : {std::nextafter(boundary, 0.0f), boundary, std::nextafter(boundary, 2.0f)})
        expect_code(t);
  EXPECT_GT(other, 1000);
}

TEST(L10_Codebook, FP4HasAZeroForEachSign) {
  const Codebook codebook = fp4_codebook();
  EXPECT_EQ(nearest_code(codebook, 1e-10f), 8);
  EXPECT_EQ(nearest_code(codebook, -1e-10f), 0);
  EXPECT_EQ(nearest_code(codebook, 0), 0);
  EXPECT_EQ(nearest_code(codebook, 1), 3);
  EXPECT_EQ(nearest_code(codebook, -1), 11);
}

// 40 elements for 16 codes: parts of 2, 3, 2, 3, ... elements; each element is in one part, the largest in
// the last.
TEST(L10_Codebook, QuantilePartsOfANumberThatDoesNotDivide) {
  std::vector<float> x;
  for (int i = 39; i >= 0; --i) x.push_back(float(i) / 64);
  const Codebook codebook = quantile_codebook(x, 4);
  const std::vector<float> middles{0.5f,  3,  5.5f,  8,  10.5f, 13, 15.5f, 18,
                                   20.5f, 23, 25.5f, 28, 30.5f, 33, 35.5f, 38};  // means of i
  ASSERT_EQ(codebook.count, 16);
  for (int code = 0; code < 16; ++code)
    EXPECT_EQ(codebook.value[code], middles[size_t(code)] / 64) << "code " << code;
  EXPECT_EQ(quantile_codebook({0.5f}, 4).value[0], 0.5f) << "the codebook of a single element";
  EXPECT_EQ(quantile_codebook({0.5f, -0.5f, 0.25f}, 4).value[15], 0.5f);
  expect_refused("no elements", [] { quantile_codebook({}, 8); });
  expect_refused("from -1 to 1", [] { quantile_codebook({NAN, 1}, 8); });
}

TEST(L10_Codebook, WhatIsNoCodebook) {
  expect_refused("a codebook of 0 values", [] { listed_codebook({}); });
  expect_refused("a codebook of 257 values", [] { listed_codebook(std::vector<float>(257, 0.0f)); });
  expect_refused("from -1 to 1", [] { listed_codebook({0, 1.001f}); });
  expect_refused("from -1 to 1", [] { listed_codebook({NAN}); });
  std::vector<float> down(17);
  for (size_t i = 0; i < 17; ++i) down[i] = -float(i) / 16;
  expect_refused("in ascending order", [&] { listed_codebook(down); });
  EXPECT_EQ(nearest_code(listed_codebook({0.25f}), -1), 0) << "a single value is the nearest to every number";
}

}  // namespace
}  // namespace gradus
