// linear_quantized() compared with linear() on the dequantized weight: outputs, gradients, saved bytes, the
// memory for dequantized tiles, refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "src/core/rng.h"
#include "src/nn/lora.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kTile = int64_t(1) << 20;  // elements of the weight that are dequantized at one time

struct Case {
  Shape x;
  int64_t out;
};
// Small odd shapes; then weights of several tiles: rows that begin within a span of 64 x 256 elements, tiles
// that end with a span, and a row that is larger than a tile.
const std::vector<Case> kCases{{{1, 1}, 1}, {{2, 3, 7}, 5},    {{4, 64}, 64},        {{3, 127}, 300},
                               {{5}, 9},    {{3, 1025}, 1100}, {{2, 1, 2048}, 1030}, {{1, kTile + 5}, 2}};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.x << " to " << c.out; }

// The relative rounding error of the dtype; for fp32, of sums of 1,000 products in any order.
double unit_of(DType t) { return t == DType::F32 ? 0x1p-20 : t == DType::BF16 ? 0x1p-8 : 0x1p-11; }

struct L12_LinearQuantized : ::testing::TestWithParam<std::tuple<const char*, DType>> {
  Context context{std::get<0>(GetParam()), 3};
  DType dtype = std::get<1>(GetParam());
  const DoubleQuantizer quantizer{context.device};
  Leaf x_leaf, bias_leaf;

  Tensor random(const Shape& shape, uint64_t stream, Kind kind = Kind::Temporary, const char* name = "x") {
    std::vector<float> values(size_t(shape.numel()));
    Rng rng(7, stream);  // not normal(): a million of them take a second
    for (float& v : values)
      v = float(2 * rng.uniform() - 1) * (0.5f + float(&v - values.data()) / float(values.size()));
    return from_host(context.device, values, shape, dtype, kind, name);
  }
  DoubleQuantized weight(int64_t out, int64_t in) {
    return quantizer.quantize(random({out, in}, 1, Kind::Weight, "w"));
  }
  Tensor numbers(const DoubleQuantized& w) {
    return dequantize(w, 0, w.shape.numel(), dtype).reshape(w.shape);
  }
  // y, dx and db; gradients that are not wanted are empty. Without w: of linear().
  using Values = std::vector<std::vector<double>>;
  Values results(const Tensor* numbers, const DoubleQuantized* w, Tensor x, Tensor bias, bool dx, bool db,
                 int times = 1) {
    for (Leaf* leaf : {&x_leaf, &bias_leaf}) leaf->grad = {}, leaf->zero();
    if (dx) attach(x, x_leaf, "x");
    if (db) attach(bias, bias_leaf, "b");
    Values found;
    for (int i = 0; i < times; ++i) {
      Tape tape;
      const Tensor y = numbers ? linear(x, *numbers, bias) : linear_quantized(x, *w, bias);
      found = {to_host<double>(y)};
      EXPECT_EQ(tape.nodes().size(), dx || db ? 1U : 0U);
      if (w) {
        EXPECT_EQ(tape.saved_bytes(), 0)
            << "the op must save no activations: codes are alive without the tape";
      }
      if (dx || db) tape.backward(y, random(y.shape(), 3));
    }
    for (const Leaf* leaf : {&x_leaf, &bias_leaf})
      found.push_back(leaf->grad.defined() ? to_host<double>(leaf->grad) : std::vector<double>());
    return found;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, L12_LinearQuantized,
                         ::testing::Combine(::testing::ValuesIn(devices_with_data()),
                                            ::testing::Values(DType::F32, DType::BF16, DType::F16)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::string(name_of(std::get<1>(info.param)));
                         });

// Error / allowed error. Allowed: two roundings for the norm of the vector (forward: the bias, then the
// product; dx: one per tile), and eight for a single element.
double share(const std::vector<double>& got, const std::vector<double>& want, double unit,
             double factor = 1) {
  if (got.size() != want.size()) return INFINITY;
  double squares = 0, errors = 0, worst = 0;
  for (const double v : want) squares += v * v;
  const double rms = std::sqrt(squares / double(std::max<size_t>(want.size(), 1)));
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(factor * got[i] - want[i]);
    errors += error * error;
    worst = std::max(worst, error / (8 * unit * (std::abs(want[i]) + rms)));
  }
  return want.empty() ? 0 : std::max(std::sqrt(errors / squares) / (2 * unit), worst);
}

TEST_P(L12_LinearQuantized, OutputsAndGradientsOfEachSubsetThatTrains) {
  for (const Case& c : kCases) {
    const DoubleQuantized w = weight(c.out, c.x[-1]);
    const Tensor numbers = this->numbers(w), x = random(c.x, 2), bias = random({c.out}, 4);
    for (const bool dx : {false, true})
      for (const bool db : {false, true}) {
        if (w.shape.numel() > kTile && dx != db) continue;  // slow on emu, and tests nothing new
        const Values want = results(&numbers, nullptr, x, bias, dx, db),
                     got = results(nullptr, &w, x, bias, dx, db);
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_EQ(got[i].empty(), (i == 1 && !dx) || (i == 2 && !db)) << c;
          EXPECT_LT(share(got[i], want[i], unit_of(dtype)), 1) << c
                                                               << (i == 0   ? ": y"
                                                                   : i == 1 ? ": dx"
                                                                            : ": db");
          if (got[i].size() > 1) {
            EXPECT_GT(share(got[i], want[i], unit_of(dtype), 1.01), 1) << c << ": an error of 1 % passed";
          }
        }
      }
  }
}

// A second backward pass adds to the gradients of the first; so does a second use within one.
TEST_P(L12_LinearQuantized, GradientsAreAddedToThoseThatAreThere) {
  for (const Case& c : {kCases[1], kCases[5]}) {
    const DoubleQuantized w = weight(c.out, c.x[-1]);
    const Tensor numbers = this->numbers(w), x = random(c.x, 2), bias = random({c.out}, 4);
    const Values want = results(&numbers, nullptr, x, bias, true, true),
                 twice = results(nullptr, &w, x, bias, true, true, 2);
    for (const size_t i : {1, 2}) {
      std::vector<double> doubled = want[i];
      for (double& v : doubled) v *= 2;
      EXPECT_LT(share(twice[i], doubled, unit_of(dtype)), 1) << c << ", two backward passes";
    }
    Tensor used = x;
    Leaf leaf;
    attach(used, leaf, "x");
    Tape tape;
    const Tensor y = add(linear_quantized(used, w, bias), scale(linear_quantized(used, w, bias), 3));
    tape.backward(y, random(y.shape(), 3));
    std::vector<double> fourfold = want[1];
    for (double& v : fourfold) v *= 4;
    EXPECT_LT(share(to_host<double>(leaf.grad), fourfold, unit_of(dtype)), 1) << c << ", used twice";
  }
}

// The tape keeps the codes for the backward pass when no other variable holds them, and notices writes to
// them.
TEST_P(L12_LinearQuantized, TheTapeHoldsTheCodes) {
  DoubleQuantized w = weight(6, 70);
  const Tensor numbers = this->numbers(w), bias = random({6}, 4);
  Tensor x = random({3, 70}, 2);
  const Values want = results(&numbers, nullptr, x, bias, true, false);
  Leaf leaf;
  attach(x, leaf, "x");
  for (const bool written : {false, true}) {
    Tape tape;
    Tensor y, codes = w.codes;
    {
      const DoubleQuantized passing = w;
      y = linear_quantized(x, passing, bias);
    }
    if (written) {
      codes.set();
      expect_refused("'w.codes' was written to", [&] { tape.backward(y, random(y.shape(), 3)); });
    } else {
      codes = {}, w.codes = {};
      tape.backward(y, random(y.shape(), 3));
      EXPECT_LT(share(to_host<double>(leaf.grad), want[1], unit_of(dtype)), 1);
      w = weight(6, 70);
    }
  }
}

// The number of tiles does not change the FLOPs: they are those of linear().
TEST_P(L12_LinearQuantized, FlopsAreThoseOfLinear) {
  const DoubleQuantized w = weight(1100, 1025);
  const Tensor numbers = this->numbers(w), x = random({2, 1025}, 2), bias = random({1100}, 4);
  Meter& meter = context.device.meter();
  meter.reset_totals();
  results(nullptr, &w, x, bias, true, true);
  const int64_t flops = meter.totals(OpClass::Contraction).flops;
  meter.reset_totals();
  results(&numbers, nullptr, x, bias, true, true);
  EXPECT_EQ(flops, meter.totals(OpClass::Contraction).flops);
  EXPECT_EQ(flops, 2 * 2 * 2 * 1025 * 1100);
}

// Temporary bytes at the peak of forward and backward.
struct Peaks {
  int64_t forward, backward, y, dy;
};
Peaks peaks_of(Device& device, DType t, const Shape& weight, bool trains) {
  Meter& meter = device.meter();
  const DoubleQuantized w = DoubleQuantizer(device).quantize(Tensor(device, weight, t, Kind::Weight, "w"));
  Tensor x(device, {1, weight[1]}, t, Kind::Data, "x");
  const Tensor bias(device, {weight[0]}, t, Kind::Data, "b");
  Leaf leaf;
  if (trains) attach(x, leaf, "x");
  Tape tape;
  meter.reset_peak();
  const int64_t before = meter.now()[Kind::Temporary];
  const Tensor y = linear_quantized(x, w, bias);
  Peaks p{meter.at_peak()[Kind::Temporary] - before, 0, y.bytes(), y.bytes()};
  EXPECT_EQ(meter.now()[Kind::Temporary] - before, y.bytes()) << "after forward only y may remain";
  if (trains) {
    const Tensor dy(device, y.shape(), t, Kind::Temporary, "dy");
    meter.reset_peak();
    const int64_t held = meter.now()[Kind::Temporary];
    tape.backward(y, dy);
    p.backward = meter.at_peak()[Kind::Temporary] - held;
  }
  return p;
}
TEST_P(L12_LinearQuantized, NumbersOfOneTileAtATime) {
  const int64_t most = kTile + kSpan, numbers = most * size_of(dtype) + 4 * (most / 64 + 1),
                scratch = 1 << 16;
  for (const Shape& shape : {Shape{1100, 1025}, Shape{2048, 2048}, Shape{4093, 1025}, Shape{700, 1000}}) {
    if (shape.numel() > 2 * kTile && std::get<0>(GetParam()) == std::string("emu")) continue;  // slow
    const Peaks p = peaks_of(context.device, dtype, shape, true);
    const int64_t tile = std::min(shape.numel(), kTile / shape[1] * shape[1]) * size_of(dtype);
    EXPECT_LE(p.forward, p.y + numbers + scratch) << shape;
    EXPECT_GE(p.forward, p.y + tile) << shape << ": the peak must contain one dequantized tile";
    EXPECT_LE(p.backward, numbers + scratch) << shape;
    EXPECT_GE(p.backward, tile) << shape;
    EXPECT_EQ(peaks_of(context.device, dtype, shape, false).forward, p.forward) << "with or without a tape";
    Context meta("meta");
    const Peaks without_data = peaks_of(meta.device, dtype, shape, true);
    EXPECT_EQ(without_data.forward, p.forward) << shape << " on meta";
    EXPECT_EQ(without_data.backward, p.backward) << shape << " on meta";
  }
}

TEST(L12_LinearQuantizedRefusals, ShapesThatDoNotFit) {
  Context context("cpu");
  const auto tensor = [&](const Shape& shape) {
    return from_host(context.device, std::vector<float>(size_t(shape.numel()), 1), shape, DType::F32,
                     Kind::Weight, "w");
  };
  const DoubleQuantizer quantizer(context.device);
  const DoubleQuantized w = quantizer.quantize(tensor({4, 5})), row = quantizer.quantize(tensor({5}));
  const std::string rule = "; their last dimensions (in) must be equal";
  expect_refused("linear_quantized: x is [2,3], weight is [4,5]" + rule, [&] {
    linear_quantized(tensor({2, 3}), w, tensor({4}));
  });
  expect_refused("linear_quantized: x is [2,5], weight is [5]" + rule, [&] {
    linear_quantized(tensor({2, 5}), row, tensor({4}));
  });
  expect_refused("linear_quantized: weight is [4,5], bias is [5]; it must be [4]", [&] {
    linear_quantized(tensor({2, 5}), w, tensor({5}));
  });
  EXPECT_EQ(refusal([&] { linear_quantized(tensor({2, 5}), w, tensor({4})); }), "");
}

}  // namespace
}  // namespace gradus
