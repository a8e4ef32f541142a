#include "lessons/12_lora/four_bits.h"

#include <iostream>

#include "src/core/rng.h"
#include "src/core/table.h"
#include "src/memory/device_timing.h"
#include "src/ops/ops.h"
#include "src/tensor/context.h"

namespace gradus {

static Tensor random(const Shape& shape, double std, Kind kind, const char* name) {
  Device& device = current().device;
  if (!device.has_data()) return Tensor(device, shape, DType::BF16, kind, name);
  Rng rng(1, uint64_t(shape[0]));
  std::vector<float> values(size_t(shape.numel()));
  for (float& v : values) v = float(std * rng.normal());
  return from_host(device, values, shape, DType::BF16, kind, name);
}

// y = product(x), and the gradient of x.
template <class F>
static void there_and_back(Tensor& x, const Tensor& dy, F product) {
  Leaf leaf;
  attach(x, leaf, "x");
  Tape tape;
  tape.backward(product(x), dy);
}

// Bytes of temporaries that a product has at the most beside its result.
template <class F>
static int64_t scratch_of(F product) {
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
  if (emulated) return {{"c_proj", {128, 128}}};  // a small one: emulation is slow
  return {{"c_attn", {2304, 768}},
          {"c_proj", {768, 768}},
          {"mlp.c_fc", {3072, 768}},
          {"mlp.c_proj", {768, 3072}}};
}

void four_bits_table(Report& report) {
  Device& device = current().device;
  const bool emulated = std::string_view(device.name()) == "emu";
  const int64_t rows = emulated ? 4 : 1024;
  const DoubleQuantizer quantizer(device);
  Table table({"layer", "(out, in)", "in bf16", "in 4 bits", "bits/weight", "scratch", "bf16, ms",
               "4 bits, ms", "speed, %"});
  double slowest = INFINITY;
  for (const auto& [name, shape] : layers_of_gpt2(emulated)) {
    const Tensor w = random(shape, 0.02, Kind::Weight, name),
                 bias = random({shape[0]}, 0.02, Kind::Weight, "bias");
    const DoubleQuantized q = quantizer.quantize(w);
    Tensor x = random({rows, shape[1]}, 1, Kind::Data, "x");
    const Tensor dy = random({rows, shape[0]}, 1, Kind::Data, "dy");
    const auto plain = [&](const Tensor& in) { return linear(in, w, bias); };
    const auto coded = [&](const Tensor& in) { return linear_quantized(in, q, bias); };
    const double bits = 8 * double(q.bytes()) / double(w.numel());
    std::vector<std::string> times(3);
    if (device.has_data() && !emulated) {
      std::vector<double> a, b;
      for (int i = 0; i < 9; ++i) {  // in turns, so that what else the machine does falls on both
        const double start = seconds_now(device);
        there_and_back(x, dy, plain);
        const double middle = seconds_now(device);
        there_and_back(x, dy, coded);
        a.push_back(middle - start), b.push_back(seconds_now(device) - middle);
      }
      const double t = summarize(a).median, t_coded = summarize(b).median;
      slowest = std::min(slowest, t / t_coded);
      times = {number_text(t * 1e3), number_text(t_coded * 1e3), number_text(100 * t / t_coded)};
    }
    table.row({name, shape.text(), bytes_text(w.bytes()), bytes_text(q.bytes()), number_text(bits),
               bytes_text(scratch_of([&] { return coded(x); })), times[0], times[1], times[2]});
    report.check_at_most(std::string(name) + ": bits a weight", bits, 4 + 8.0 / 64 + 32.0 / kSpan);
  }
  std::cout << "\n(b) Weights in 4 bits\n\n" << table;
  if (slowest < INFINITY)
    report.timing_at_least("slowest product from 4 bits, beside bf16's speed", slowest, 0.5);
}

}  // namespace gradus
