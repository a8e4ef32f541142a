// Lesson 10: the bytes and errors of its formats, the quantized model, the picture.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lessons/10_quantization/evaluate.h"
#include "lessons/10_quantization/formats.h"
#include "lessons/10_quantization/picture.h"
#include "tests/devices.h"
#include "tests/mistakes.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L10_Formats, BitsPerNumber) {
  RecordProperty("exercise", "10.1");
  EXPECT_DOUBLE_EQ(bits_per_number(8, 64, 1), 8.5);
  EXPECT_DOUBLE_EQ(bits_per_number(4, 64, 1), 4.5);
  const double two = bits_per_number(8, 64, 2);
  EXPECT_DOUBLE_EQ(two, 9) << usual_mistake(
      {{two == 8.125, "the constants are counted in bytes, the codes in bits"},
       {two == 8.5, "two constants of a block count as 32 bits together: how many bits does each have?"}});
  EXPECT_DOUBLE_EQ(bits_per_number(4, 1 << 20, 1), 4 + 0x1p-15);
  EXPECT_DOUBLE_EQ(bits_per_number(8, 3, 1), 8 + 32.0 / 3);
  EXPECT_DOUBLE_EQ(bits_per_number(4, 2, 0), 4);
}

// A codebook made here, so that 10.4 may be open.
Codebook unsearched(const std::vector<float>& value) {
  Codebook codebook;
  codebook.count = int32_t(value.size());
  std::copy(value.begin(), value.end(), codebook.value);
  return codebook;
}

TEST(L10_Formats, ABlockHasItsScaleAndTheNearestCodes) {
  RecordProperty("exercise", "10.3");
  using Codes = std::vector<uint8_t>;
  const Codebook five = unsearched({-1, -0.5f, 0, 0.5f, 1});
  const CodedBlock block = quantize_block(five, {0.3f, -4, 1.1f, 2.9f, -1.2f});
  EXPECT_EQ(block.scale, 4) << usual_mistake(
      {{block.scale == 2.9f, "the scale is the largest number: which number has the largest magnitude?"},
       {block.scale == 0, "the scale is still 0"}});
  EXPECT_EQ(block.codes, (Codes{2, 0, 3, 3, 1})) << usual_mistake(
      {{block.codes == Codes{3, 0, 4, 4, 0},
        "the numbers were compared with the values before they were divided by the scale"},
       {block.codes == Codes{2, 0, 2, 3, 1}, "a number got the value below it: is the next value nearer?"},
       {block.codes.size() != 5, "there are not as many codes as numbers"}});
  // FP4's values do not ascend, so each value must be compared.
  for (const Codebook& codebook :
       {unsearched({0, 0.0052f, 0.67f, 1, 0.33f, 0.5f, -0.67f, -1, -0.33f}), five}) {
    const std::vector<float> x = normal_numbers(1000, 5);
    const CodedBlock many = quantize_block(codebook, x);
    ASSERT_EQ(many.codes.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double t = double(x[i]) / double(many.scale);
      double best = INFINITY;
      for (int c = 0; c < codebook.count; ++c) best = std::min(best, std::abs(t - double(codebook.value[c])));
      ASSERT_LT(many.codes[i], codebook.count);
      ASSERT_NEAR(std::abs(t - double(codebook.value[many.codes[i]])), best, 1e-6)
          << x[i] << " of a block with scale " << many.scale << " has code " << int(many.codes[i])
          << ", which is not the code of the nearest value";
    }
  }
}

TEST(L10_Formats, ABlockOfZerosHasTheCodeOfZero) {
  RecordProperty("exercise", "10.3");
  const CodedBlock zeros = quantize_block(unsearched({-1, -0.5f, 0, 0.5f, 1}), {0, 0, 0});
  const std::vector<uint8_t> expected{2, 2, 2};
  EXPECT_EQ(zeros.scale, 0);
  EXPECT_EQ(zeros.codes, expected) << usual_mistake(
      {{zeros.codes != expected,
        "a block of zeros has scale 0, and 0 / 0 is NaN, to which no value is nearest"}});
}

// Blocks of 64 elements, the last of which may be shorter.
TEST(L10_Formats, PlainLoopsHaveTheErrorOfTheKernel) {
  for (const char* device : devices_with_data()) {
    Context context(device);
    for (const char* name : {"absmax, blocks", "NF4, blocks", "FP4, blocks"})
      for (const int64_t n : {4096, 100, 1}) {
        const std::vector<float> x = normal_numbers(n, 7);
        const double kernel = measure(format_of(name), x).error;
        EXPECT_NEAR(plain_error(format_of(name), x), kernel, 1e-5 * kernel)
            << name << ", " << n << " numbers";
      }
  }
}

TEST(L10_Formats, SharesOfCodes) {
  Context context("cpu");
  // In steps of 1/7: -1 has code 0, 0 has code 7, 1 has code 14.
  std::vector<double> shares(15, 0.0);
  shares[0] = shares[14] = 0.2, shares[7] = 0.6;
  const std::vector<double> measured = code_shares(format_of("absmax, 4 bits"), {0, 1, 0, -1, 0});
  ASSERT_EQ(measured.size(), 15u);
  for (size_t code = 0; code < 15; ++code) EXPECT_NEAR(measured[code], shares[code], 1e-12) << code;
}

TEST(L10_Formats, HaveThePredictedBytes) {
  Context context("meta");
  ASSERT_EQ(format_names().size(), 10u);
  for (const std::string& name : format_names())
    for (const int64_t n : {256, 4096, 256 * 1001, 255}) {
      const QuantFormat format = format_of(name, {0.5f, 1});
      if (format.block > 0 && n % format.block != 0) continue;
      const Tensor x(context.device, {n}, DType::F32, Kind::Weight, "x");
      EXPECT_EQ(Quantizer(context.device, format).quantize(x).bytes(), predicted_bytes(format, n))
          << name << ", " << n;
    }
}

// Of each format: name, bits, elements of a block (0: the whole tensor), range, number of values.
TEST(L10_Formats, HaveThePropertiesInTheirNames) {
  const std::vector<float> x{-2, 1, 0.5f, 0.25f};
  for (const std::string& name : format_names()) {
    const QuantFormat f = format_of(name, x);
    EXPECT_EQ(f.name, name);
    EXPECT_EQ(f.bits, name.find("4") == std::string::npos ? 8 : 4) << name;
    EXPECT_EQ(f.block, name.find("blocks") == std::string::npos ? 0
                       : name == "dynamic, blocks"              ? 256
                                                                : 64)
        << name;
    EXPECT_EQ(f.range == Range::ZeroPoint, name == "zero point");
    EXPECT_EQ(f.range == Range::Given, name == "range of fp16");
    EXPECT_LE(f.codebook.count, 1 << f.bits) << name;
    EXPECT_GE(f.codebook.count, (1 << f.bits) - 1) << name;
  }
  expect_refused("there is no format 'nf4'", [] { format_of("nf4"); });
  EXPECT_EQ(format_of("range of fp16").given, 65504);
  EXPECT_EQ(format_of("NF4, blocks").codebook.value[1], nf4_codebook().value[1]);
  EXPECT_EQ(format_of("FP4, blocks").codebook.value[1], fp4_codebook().value[1]);
  EXPECT_EQ(format_of("dynamic, blocks").codebook.value[1], dynamic_codebook(Sign::Signed).value[1]);
  EXPECT_EQ(format_of("quantile", x).codebook.value[0], -1)
      << "the codebook is of x divided by its largest magnitude";
  EXPECT_EQ(format_of("quantile", x).codebook.value[255], 0.5f);
}

// A zero point is there so that 0 is represented exactly.
TEST(L10_Formats, ZeroIsRepresentedExactly) {
  RecordProperty("exercise", "10.8");
  for (const char* device : devices_with_data()) {
    Context context(device);
    for (const float least : {-1.0f, -0.3f, -0.007f, 0.0f, 0.4f, -2.0f})
      for (const float greatest : {1.7f, 0.01f, 0.9f, -0.05f}) {
        const std::vector<float> x{least, 0, greatest, 0};
        const Quantizer quantizer(context.device, format_of("zero point"));
        const Quantized q =
            quantizer.quantize(from_host(context.device, x, {4}, DType::F32, Kind::Data, "x"));
        const std::vector<float> y = to_host<float>(quantizer.dequantize(q, DType::F32));
        EXPECT_EQ(y[1], 0)
            << device << ": 0 in the block {" << least << ", 0, " << greatest
            << ", 0} is dequantized to a different number: is the offset a multiple of a step?";
        EXPECT_EQ(y[3], 0) << device;
        const float step = (std::max({least, greatest, 0.0f}) - std::min({least, greatest, 0.0f})) / 255;
        EXPECT_NEAR(y[0], least, 0.51f * step);
        EXPECT_NEAR(y[2], greatest, 0.51f * step);
      }
  }
}

TEST(L10_Formats, ErrorIsRelativeToTheMeanMagnitude) {
  Context context("cpu");
  // In steps of 1/7, 1, -1 and 3/7 are represented exactly, and 0.25 becomes 2/7.
  const Measured d = measure(format_of("absmax, 4 bits"), {1, -1, 3.0f / 7, 0.25f});
  EXPECT_NEAR(d.error, (2.0 / 7 - 0.25) / (1 + 1 + 3.0 / 7 + 0.25), 1e-6);
  EXPECT_DOUBLE_EQ(d.codes_used, 4.0 / 15);
  EXPECT_EQ(d.bytes, 2 + 4);
  EXPECT_DOUBLE_EQ(measure(format_of("NF4, blocks"), {0.5f, 0.5f, 0.5f}).codes_used, 1.0 / 16)
      << "an odd number of codes";
  EXPECT_NEAR(measure(format_of("range of fp16"), normal_numbers(100, 1)).error, 1, 1e-12)
      << "every number becomes 0";
}

TEST(L10_Formats, NormalNumbers) {
  const std::vector<float> x = normal_numbers(10000, 1);
  ASSERT_EQ(x.size(), 10000u);
  double sum = 0, squares = 0;
  for (const float v : x) sum += double(v), squares += double(v) * double(v);
  EXPECT_NEAR(sum / 1e4, 0, 0.05);
  EXPECT_NEAR(squares / 1e4, 1, 0.05);
  EXPECT_NE(normal_numbers(3, 2), normal_numbers(3, 1));
}

TEST(L10_Evaluate, EachFormatIsMeasuredAndTheWeightsAreRestored) {
  Context context("cpu", 3);
  const Text text = load_text("", 20'000, 1);
  const Loader loader(text.corpus, 16, 1);
  Transformer model(
      {.vocab = ByteTokenizer::kVocabulary, .context = 16, .layers = 1, .heads = 2, .channels = 16});
  model.initialize(1);
  const std::vector<float> before = matrices_of(model);
  const double loss = held_out_loss(model, loader, 8);
  const std::vector<Quality> all = evaluate_formats(model, loader, 8);
  EXPECT_EQ(matrices_of(model), before);
  ASSERT_EQ(all.size(), format_names().size() + 1);
  EXPECT_EQ(all[0].format, "fp32");
  EXPECT_EQ(all[0].bytes, 4 * model.parameters.numel());
  EXPECT_EQ(all[0].loss, loss);
  int64_t matrices = 0;
  for (const Parameter& p : model.parameters) matrices += p.decay ? p.value.numel() : 0;
  EXPECT_EQ(matrices, int64_t(before.size()));
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(all[i].format, format_names()[i - 1]);
    int64_t bytes = 4 * (model.parameters.numel() - matrices);
    for (const Parameter& p : model.parameters)
      if (p.decay)
        bytes += Quantizer(context.device, format_of(all[i].format, {1})).quantize(p.value).bytes();
    EXPECT_EQ(all[i].bytes, bytes) << all[i].format;
    EXPECT_NE(all[i].loss, loss) << all[i].format << " does not change the loss";
  }
  const auto off = [&](const char* name) {
    for (const Quality& q : all)
      if (q.format == name) return std::abs(q.loss - loss);
    return NAN + 0.0;
  };
  EXPECT_LT(off("absmax, blocks"), off("absmax, 4 bits, blocks"));
  EXPECT_LT(off("absmax, blocks"), off("range of fp16"));
}

TEST(L10_Picture, EightPanels) {
  for (const char* device : devices_with_data()) {
    Context context(device);
    const std::vector<Panel> all = panels(32);
    ASSERT_EQ(all.size(), 8u);
    EXPECT_EQ(all[0].brightness, drawn(32));
    EXPECT_EQ(*std::max_element(all[0].brightness.begin(), all[0].brightness.end()), 6) << "the spark";
    const auto error = [&](size_t i) {
      double sum = 0;
      for (size_t k = 0; k < all[0].brightness.size(); ++k)
        sum += std::abs(double(all[i].brightness[k]) - double(all[0].brightness[k]));
      return sum;
    };
    for (size_t i = 1; i < 8; ++i) {
      const std::set<float> shades(all[i].brightness.begin(), all[i].brightness.end());
      EXPECT_GT(error(i), 0) << all[i].name;
      if (all[i].name.find("blocks") == std::string::npos) {
        EXPECT_LE(shades.size(), 16u) << all[i].name << ": 4 bits give at most 16 shades";
      } else {
        EXPECT_LT(error(i), 0.5 * error(2)) << all[i].name << ": the spark harms only its own block";
      }
    }
    EXPECT_EQ(all[1].name, "range of fp16");
    for (const float v : all[1].brightness) ASSERT_EQ(v, 0) << "all gray";
  }
}

}  // namespace
}  // namespace gradus
