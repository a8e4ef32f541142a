// AdamW8bit: its bytes, its updates compared with bitsandbytes' (tests/golden/make_adam8bit.py), and how far
// it moves weights.
#include "src/optim/adamw_8bit.h"

#include <functional>

#include "tests/nn/golden_testing.h"
#include "tests/optim/optim_testing.h"
#include "tests/quant/golden_inputs.h"

namespace gradus {
namespace {

class L11_AdamW8bit : public ::testing::TestWithParam<const char*> {
 protected:
  Context context{GetParam()};

  // Different gradients for each seed.
  static void set_gradients(Parameters& parameters, int64_t seed) {
    for (Parameter& p : parameters) {
      const std::vector<float> all = golden_inputs(seed * 1000 + p.value.numel());
      set_gradient(p, std::vector<float>(all.end() - p.value.numel(), all.end()));
    }
  }
  static std::vector<int32_t> bytes_of(const Tensor& t) { return to_host<int32_t>(t); }
};
ON_DEVICES_WITH_DATA(L11_AdamW8bit);

// Two codes per parameter and two scales per block of 256: 2.03125 bytes; below 4,096 elements two fp32
// numbers per parameter.
TEST(L11_AdamW8bit, BytesOfItsStates) {
  const Context context("meta");
  const auto bytes = [](const Shape& shape, const Precision& precision = {}) {
    Parameters parameters;
    parameters.add("w", shape, precision);
    const AdamW8bit optimizer(parameters);
    return current().device.meter().now()[Kind::Optimizer];
  };
  EXPECT_EQ(double(bytes({1024, 1024})) / (1024 * 1024), 2.03125);
  EXPECT_EQ(bytes({4095}), 8 * 4095);
  EXPECT_EQ(bytes({4096}), 2 * 4096 + 8 * 16);
  EXPECT_EQ(bytes({4097}), 2 * 4097 + 8 * 17);
  EXPECT_EQ(bytes({63, 65}), 8 * 63 * 65);
  EXPECT_EQ(bytes({4095}, precision_recipe("half")), 4 * 4095);
  EXPECT_EQ(bytes({1024, 1024}, precision_recipe("mixed")), 2 * 1024 * 1024 + 8 * 4096);
}

TEST_P(L11_AdamW8bit, SmallTensorsAreUpdatedAsByAdamW) {
  const AdamWArgs args{.weight_decay = 0.1f};
  const auto trained = [&](const auto& make) {
    Parameters parameters;
    copy_from_host(parameters.add("small", {45, 91}, {}).value, std::vector<double>(45 * 91, 0.5));
    copy_from_host(parameters.add("large", {4096}, {}).value, std::vector<double>(4096, 0.5));
    const std::unique_ptr<Optimizer> optimizer = make(parameters);
    for (int step = 0; step < 3; ++step) {
      set_gradients(parameters, step);
      optimizer->step(0.01);
    }
    return std::pair(to_host<double>(parameters.find("small").value),
                     to_host<double>(parameters.find("large").value));
  };
  const auto coded = trained([&](Parameters& p) { return std::make_unique<AdamW8bit>(p, args); });
  const auto plain = trained([&](Parameters& p) { return std::make_unique<AdamW>(p, args); });
  EXPECT_EQ(coded.first, plain.first);
  EXPECT_NE(coded.second, plain.second);
  for (size_t i = 0; i < coded.second.size(); ++i) EXPECT_NEAR(coded.second[i], plain.second[i], 0.01);
}

// For a matrix whose blocks have gradients of different sizes.
TEST_P(L11_AdamW8bit, TenUpdatesAsByBitsandbytes) {
  constexpr int64_t kRows = 40, kCols = 130, N = kRows * kCols;
  Parameters parameters;
  Parameter& p = parameters.add("w", {kRows, kCols}, {});
  const std::vector<float> first = golden_inputs(N);
  copy_from_host(p.value, {first.begin(), first.end()});
  AdamW8bit optimizer(parameters, {.beta1 = 0.9f, .beta2 = 0.95f, .weight_decay = 0.1f});
  const std::vector<float> all = golden_inputs(12 * N);
  for (int step = 0; step < 10; ++step) {
    std::vector<float> g(all.begin() + (step + 1) * N, all.begin() + (step + 2) * N);
    for (int64_t i = 0; i < N; ++i)
      g[size_t(i)] = g[size_t(i)] * float(std::pow(10.0, -double(i / 256 % 4))) * 0.1f;
    set_gradient(p, g);
    optimizer.step(1e-2);
  }
  Golden file("tests/golden/adam8bit.safetensors");
  const std::vector<double> got = to_host<double>(p.value), reference = file.read("p", {N});
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - reference[i]));
  EXPECT_LE(worst, 1e-3);
  RecordProperty("largest difference to bitsandbytes", std::to_string(worst));
  for (const int i : {0, 1}) {
    const char* name = i == 0 ? "m" : "v";
    std::vector<uint8_t> codes(size_t(N), 0);
    file.file.read(name, DType::U8, {N}, codes.data());
    const std::vector<int32_t> ours = bytes_of(optimizer.states[0].tensors[size_t(i)]);
    int64_t equal = 0;
    for (size_t k = 0; k < ours.size(); ++k) equal += ours[k] == codes[k];
    EXPECT_GE(double(equal) / double(N), 0.99) << name;
    RecordProperty(std::string("codes equal of ") + name, std::to_string(double(equal) / double(N)));
    const std::vector<double> scales = to_host<double>(optimizer.states[0].tensors[size_t(i + 2)]),
                              want = file.read(std::string(name) + ".scales", {(N + 255) / 256});
    for (size_t b = 0; b < scales.size(); ++b) EXPECT_NEAR(scales[b], want[b], 1e-3 * want[b]) << name << b;
  }
}

// For each of `count` weights, the largest move in an update, in learning rates. Their gradients are
// gradient(step, i); in each step their block also has one large gradient.
std::vector<double> farthest_moves(const char* device, int steps, size_t count,
                                   const std::function<float(int, size_t)>& gradient,
                                   const std::function<std::unique_ptr<Optimizer>(Parameters&)>& make) {
  const Context context(device);
  constexpr double kRate = 0x1p-10;
  Parameters parameters;
  Parameter& p = parameters.add("w", {4096}, {});
  copy_from_host(p.value, std::vector<double>(4096, 0.0));
  const std::unique_ptr<Optimizer> optimizer = make(parameters);
  std::vector<double> before(4096, 0.0), farthest(count, 0.0);
  for (int step = 0; step < steps; ++step) {
    std::vector<float> g(4096, 0.0f);
    g[255] = 1;
    for (size_t i = 0; i < count; ++i) g[i] = gradient(step, i);
    set_gradient(p, g);
    optimizer->step(kRate);
    const std::vector<double> after = to_host<double>(p.value);
    for (size_t i = 0; i < count; ++i)
      farthest[i] = std::max(farthest[i], std::abs(after[i] - before[i]) / kRate);
    before = after;
  }
  return farthest;
}
std::unique_ptr<Optimizer> coded(Parameters& p) { return std::make_unique<AdamW8bit>(p); }
std::unique_ptr<Optimizer> plain(Parameters& p) { return std::make_unique<AdamW>(p); }

// Gradients that are nonzero only in the first update, or tiny from the second one on. If v became 0 but m
// did not, the next update divided m by epsilon alone and moved the weight by hundreds of learning rates or
// more.
TEST_P(L11_AdamW8bit, AWeightOfRareGradientsMovesNoFartherThanByAdamW) {
  const std::vector<float> first{3e-4f, -1e-4f, 3e-5f, 1e-5f, -1e-6f, 1e-8f, 1e-20f, 1e-21f, 0.0f};
  for (const float later : {0.0f, 1e-3f, -1e-6f}) {
    const auto gradient = [&](int step, size_t i) { return step == 0 ? first[i] : later * first[i]; };
    const auto ours = farthest_moves(GetParam(), 30, first.size(), gradient, coded),
               adamw = farthest_moves(GetParam(), 30, first.size(), gradient, plain);
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_LE(ours[i], std::max(1.001, adamw[i] * 1.001))
          << "a gradient of " << first[i] << ", then " << later * first[i] << ": AdamW moves " << adamw[i];
  }
}

// Gradients that begin late and stay. Each adds a thousandth of its square to v; if this is rounded away, v
// stays small while m grows.
TEST_P(L11_AdamW8bit, AWeightWhoseGradientStaysMovesAboutAsFarAsByAdamW) {
  std::vector<float> size;
  for (int i = 0; i < 60; ++i) size.push_back(float(std::pow(10.0, -4 + 0.07 * i)));
  const auto gradient = [&](int step, size_t i) { return step < 100 ? 0 : size[i]; };
  const auto ours = farthest_moves(GetParam(), 300, size.size(), gradient, coded),
             adamw = farthest_moves(GetParam(), 300, size.size(), gradient, plain);
  for (size_t i = 0; i < size.size(); ++i)
    EXPECT_LE(ours[i], 2 * adamw[i]) << "a gradient of " << size[i] << ": AdamW moves " << adamw[i];
}

}  // namespace
}  // namespace gradus
