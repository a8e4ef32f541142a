#include "lessons/12_lora/four_bits.h"

#include <iostream>

#include "src/core/rng.h"
#include "src/core/table.h"
#include "src/memory/device_timing.h"
#include "src/nn/lora.h"
#include "src/ops/ops.h"
#include "src/tensor/context.h"

namespace gradus {

int64_t nf4_bytes(int64_t n) { return n / 2 + n / kWeightBlock + 4 * ((n + kSpan - 1) / kSpan); }

static Tensor random(const Shape& shape, double std, Kind kind, const char* name) {
  Device& device = current().device;
  if (!device.has_data()) return Tensor(device, shape, DType::BF16, kind, name);
  Rng rng(1, uint64_t(shape[0]));
  std::vector<float> values(size_t(shape.numel()));
  for (float& v : values) v = float(std * rng.normal());
  return from_host(device, values, shape, DType::BF16, kind, name);
}

// The forward pass y = product(x), and the backward pass to the gradient of x.
template <class F>
static void forward_and_backward(Tensor& x, const Tensor& dy, F product) {
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  tape.backward(product(x), dy);
}

// The most bytes of temporaries that a product has at a time; its result does not count.
template <class F>
static int64_t temporaries_of(F product) {
  Meter& meter = current().device.meter();
  const int64_t before = meter.now()[Kind::Temporary];
  meter.reset_peak();
  const Tensor y = product();
  return meter.at_peak()[Kind::Temporary] - before - y.bytes();
}

struct Layer {
  const char* name;
  Shape shape;
};
static std::vector<Layer> layers_of_gpt2(bool emulated) {
  if (emulated) return {{"c_proj", {128, 128}}};  // emulation is slow
  return {{"c_attn", {2304, 768}},
          {"c_proj", {768, 768}},
          {"mlp.c_fc", {3072, 768}},
          {"mlp.c_proj", {768, 3072}}};
}

static int64_t weight_bytes() { return current().device.meter().now()[Kind::Weight]; }

std::vector<FourBits> measure_four_bits() {
  Device& device = current().device;
  const bool emulated = std::string_view(device.name()) == "emu";
  const int64_t rows = emulated ? 4 : 1024;
  const DoubleQuantizer quantizer(device);
  std::vector<FourBits> found;
  for (const auto& [name, shape] : layers_of_gpt2(emulated)) {
    const Tensor w = random(shape, 0.02, Kind::Weight, name),
                 bias = random({shape[0]}, 0.02, Kind::Weight, "bias");
    const int64_t before = weight_bytes();
    const DoubleQuantized q = quantizer.quantize(w);
    FourBits& layer = found.emplace_back(FourBits{name, shape, weight_bytes() - before, w.bytes(), 0, 0, 0});
    Tensor x = random({rows, shape[1]}, 1, Kind::Data, "x");
    const Tensor dy = random({rows, shape[0]}, 1, Kind::Data, "dy");
    const auto plain = [&](const Tensor& in) { return linear(in, w, bias); };
    const auto coded = [&](const Tensor& in) { return linear_quantized(in, q, bias); };
    layer.temporaries = temporaries_of([&] { return coded(x); });
    if (!device.has_data() || emulated) continue;
    std::vector<double> a, b;
    for (int i = 0; i < 5; ++i) {  // alternating runs (A B A B), so that other programs slow both down
      const double start = seconds_now(device);
      forward_and_backward(x, dy, plain);
      const double middle = seconds_now(device);
      forward_and_backward(x, dy, coded);
      a.push_back(middle - start), b.push_back(seconds_now(device) - middle);
    }
    layer.seconds_bf16 = summarize(a).median, layer.seconds = summarize(b).median;
  }
  return found;
}

void four_bits_table(const std::vector<FourBits>& layers, Report& report) {
  Table table({"layer", "(out, in)", "bf16 weight", "NF4 weight", "bits per weight", "NF4 temporaries",
               "bf16, ms", "NF4, ms", "NF4 speed / bf16 speed"});
  double slowest = INFINITY;
  for (const FourBits& l : layers) {
    const int64_t n = l.shape.numel();
    std::vector<std::string> times(3);
    if (l.seconds > 0) {
      const double speed = l.seconds_bf16 / l.seconds;
      slowest = std::min(slowest, speed);
      times = {number_text(l.seconds_bf16 * 1e3), number_text(l.seconds * 1e3), number_text(speed)};
    }
    table.row({l.name, l.shape.text(), bytes_text(l.bytes_bf16), bytes_text(l.bytes),
               number_text(8 * double(l.bytes) / double(n)), bytes_text(l.temporaries), times[0], times[1],
               times[2]});
    report.check_equal("(b) " + l.name + ": NF4 weight, bytes", l.bytes, nf4_bytes(n));
  }
  std::cout << "\n(b) Weights in NF4 with double quantization: product of 1,024 tokens, forward pass and "
               "gradient of x\n\n"
            << table;
  if (slowest < INFINITY) report.timing_at_least("(b) slowest product: NF4 speed / bf16 speed", slowest, 0.5);
}

}  // namespace gradus
