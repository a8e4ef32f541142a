// AdamW8bit: its bytes, its checkpoints, and its updates beside bitsandbytes'
// (tests/golden/make_adam8bit.py).
#include "src/optim/adamw_8bit.h"

#include <cstdio>
#include <functional>

#include "src/io/checkpoint.h"
#include "tests/nn/golden_testing.h"
#include "tests/quant/golden_inputs.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

class L11_AdamW8bit : public ::testing::TestWithParam<const char*> {
 protected:
  Context context{GetParam()};

  static void set_gradient(Parameter& p, const std::vector<float>& g) {
    p.leaf.grad =
        from_host(current().device, g, p.value.shape(), DType::F32, Kind::Gradient, p.name + ".grad");
    p.leaf.empty = false;
  }
  // Another one for each seed.
  static void set_gradients(Parameters& parameters, int64_t seed) {
    for (Parameter& p : parameters) {
      const std::vector<float> all = golden_inputs(seed * 1000 + p.value.numel());
      set_gradient(p, {all.end() - p.value.numel(), all.end()});
    }
  }
  static std::vector<int32_t> bytes_of(const Tensor& t) { return to_host<int32_t>(t); }
};
INSTANTIATE_TEST_SUITE_P(Devices, L11_AdamW8bit, ::testing::ValuesIn(devices_with_data()),
                         [](const auto& info) { return std::string(info.param); });

// Two codes a parameter and two scales a block of 256: 2.03125 bytes; below 4,096 elements two numbers of
// fp32.
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

// m (0) or v (1) of the optimizer's only parameter: what its codes and scales stand for.
std::vector<double> state_of(const AdamW8bit& optimizer, size_t i) {
  const QuantBook book = dynamic_book(i == 0 ? Sign::Signed : Sign::Unsigned);
  const std::vector<Tensor>& t = optimizer.states[0].tensors;
  const std::vector<double> scales = to_host<double>(t[i + 2]);
  std::vector<double> x;
  for (const int32_t code : to_host<int32_t>(t[i]))
    x.push_back(scales[x.size() / kStateBlock] * double(book.value[code]));
  return x;
}

// Ten updates of a matrix whose blocks have gradients of other sizes. In fp64 each begins with the states
// that were kept: a number half way between two values may become either.
TEST_P(L11_AdamW8bit, TenUpdatesAsInFp64AndAsByBitsandbytes) {
  constexpr int64_t kRows = 40, kCols = 130, N = kRows * kCols;
  constexpr double kRate = 1e-2, b1 = 0.9f, b2 = 0.95f, kDecay = 0.1f;
  Parameters parameters;
  Parameter& p = parameters.add("w", {kRows, kCols}, {});
  const std::vector<float> first = golden_inputs(N);
  std::vector<double> w(first.begin(), first.end());
  copy_from_host(p.value, w);
  AdamW8bit optimizer(parameters, {.beta1 = 0.9f, .beta2 = 0.95f, .weight_decay = 0.1f});
  const std::vector<float> all = golden_inputs(12 * N);
  for (int step = 0; step < 10; ++step) {
    const std::vector<double> m = state_of(optimizer, 0), v = state_of(optimizer, 1);
    std::vector<float> g(all.begin() + (step + 1) * N, all.begin() + (step + 2) * N);
    for (int64_t i = 0; i < N; ++i) {
      g[size_t(i)] = g[size_t(i)] * float(std::pow(10.0, -double(i / 256 % 4))) * 0.1f;
      const double gi = g[size_t(i)], n = step + 1;
      const double mi = b1 * m[size_t(i)] + (1 - b1) * gi, vi = b2 * v[size_t(i)] + (1 - b2) * gi * gi;
      w[size_t(i)] = w[size_t(i)] * (1 - kRate * kDecay) -
                     kRate * (mi / (1 - std::pow(b1, n))) / (std::sqrt(vi / (1 - std::pow(b2, n))) + 1e-8);
    }
    set_gradient(p, g);
    optimizer.step(kRate);
  }
  Golden file("tests/golden/adam8bit.safetensors");
  const std::vector<double> got = to_host<double>(p.value), theirs = file.read("p", {N});
  double of_fp64 = 0, of_theirs = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    of_fp64 = std::max(of_fp64, std::abs(got[i] - w[i]));
    of_theirs = std::max(of_theirs, std::abs(got[i] - theirs[i]));
  }
  EXPECT_LE(of_fp64, 1e-6);
  EXPECT_LE(of_theirs, 1e-3);
  RecordProperty("largest difference to fp64", std::to_string(of_fp64));
  RecordProperty("largest difference to bitsandbytes", std::to_string(of_theirs));
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

// The farthest that an update moves each of some weights, in learning rates. Their block has one large
// gradient, always; theirs are what gradient(step, i) says.
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
    p.leaf.grad = from_host(current().device, g, {4096}, DType::F32, Kind::Gradient, "w.grad");
    p.leaf.empty = false;
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

// Gradients that are there in the first update alone, or tiny from the second one on. Where v became 0 and m
// did not, the next update divided m by epsilon alone: it moved the weight by hundreds of learning rates and
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

// Gradients that begin late and stay. Each adds a thousandth of its square to v; where that is rounded away,
// v stays as small as it began, and m grows.
TEST_P(L11_AdamW8bit, AWeightWhoseGradientStaysMovesAboutAsFarAsByAdamW) {
  std::vector<float> size;
  for (int i = 0; i < 60; ++i) size.push_back(float(std::pow(10.0, -4 + 0.07 * i)));
  const auto gradient = [&](int step, size_t i) { return step < 100 ? 0 : size[i]; };
  const auto ours = farthest_moves(GetParam(), 300, size.size(), gradient, coded),
             adamw = farthest_moves(GetParam(), 300, size.size(), gradient, plain);
  for (size_t i = 0; i < size.size(); ++i)
    EXPECT_LE(ours[i], 2 * adamw[i]) << "a gradient of " << size[i] << ": AdamW moves " << adamw[i];
}

// What is saved and loaded goes on as if nothing had been: codes and scales are in the file.
TEST_P(L11_AdamW8bit, CheckpointsHoldCodesAndScales) {
  const std::string path = testing::TempDir() + "adamw_8bit_" + GetParam() + ".safetensors";
  Parameters one, two;
  for (Parameters* p : {&one, &two}) {
    copy_from_host(p->add("w", {70, 70}, {}).value, std::vector<double>(4900, 0.25));
    copy_from_host(p->add("b", {70}, {}).value, std::vector<double>(70, 0.25));
  }
  AdamW8bit a(one), b(two);
  for (int step = 0; step < 2; ++step) set_gradients(one, step), a.step(0.1);
  save_training(path, one, a);
  load_training(path, two, b);
  set_gradients(one, 2), a.step(0.1);
  set_gradients(two, 2), b.step(0.1);
  for (const char* name : {"w", "b"})
    EXPECT_EQ(to_host<double>(one.find(name).value), to_host<double>(two.find(name).value)) << name;
  EXPECT_EQ(bytes_of(a.states[0].tensors[0]), bytes_of(b.states[0].tensors[0]));
  EXPECT_EQ(to_host<double>(a.states[0].tensors[3]), to_host<double>(b.states[0].tensors[3]));
  AdamW plain(two);
  EXPECT_NE(refusal([&] { load_training(path, two, plain); }), "");
  std::remove(path.c_str());
}

// With loss scaling: an overflow leaves weights, codes and scales as they are.
TEST_P(L11_AdamW8bit, AnOverflowChangesNothing) {
  Parameters parameters;
  Parameter& p = parameters.add("w", {80, 80}, {});
  copy_from_host(p.value, std::vector<double>(6400, 0.25));
  AdamW8bit optimizer(parameters);
  start_loss_scaling(context.device, 1024);
  const auto step = [&](int64_t seed, float first) {
    std::vector<float> g = golden_inputs(seed * 1000 + 6400);
    g.erase(g.begin(), g.end() - 6400);
    g[0] = first;
    set_gradient(p, g);
    optimizer.clip_grad_norm(0);
    optimizer.step(0.1);
  };
  step(0, 1);
  const auto w = to_host<double>(p.value);
  std::vector<std::vector<int32_t>> codes;
  for (const size_t i : {0, 1}) codes.push_back(bytes_of(optimizer.states[0].tensors[i]));
  const auto scales = to_host<double>(optimizer.states[0].tensors[3]);
  step(1, INFINITY);
  EXPECT_EQ(to_host<double>(p.value), w);
  for (const size_t i : {0, 1}) EXPECT_EQ(bytes_of(optimizer.states[0].tensors[i]), codes[i]);
  EXPECT_EQ(to_host<double>(optimizer.states[0].tensors[3]), scales);
  step(1, 1);
  EXPECT_NE(to_host<double>(p.value), w);
}

TEST(L11_AdamW8bit, Fp64IsRefused) {
  const Context context("cpu");
  Parameters parameters;
  Parameter& p = parameters.add("w", {64, 64}, uniform(DType::F64));
  AdamW8bit optimizer(parameters);
  p.leaf.grad =
      from_host(current().device, std::vector<double>(4096, 1.0), {64, 64}, DType::F64, Kind::Gradient, "g");
  p.leaf.empty = false;
  EXPECT_NE(refusal([&] { optimizer.step(0.1); }).find("fp64"), std::string::npos);
}

}  // namespace
}  // namespace gradus
