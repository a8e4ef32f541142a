#include "lessons/06_optimizers/update_time.h"

#include <iostream>

#include "lessons/06_optimizers/contenders.h"
#include "src/core/rng.h"
#include "src/memory/device_timing.h"
#include "src/optim/muon.h"
#include "src/train/machine.h"

namespace gradus {

void add_matrices(Parameters& parameters, int count, int64_t rows, int64_t cols) {
  Rng rng(1, 6);
  std::vector<float> values(size_t(rows * cols));
  for (float& v : values) v = float(rng.normal());
  Device& device = current().device;
  for (int i = 0; i < count; ++i) {
    Parameter& p = parameters.add("h." + std::to_string(i), {rows, cols}, {});
    copy_from_host(p.value, std::vector<double>(values.begin(), values.end()));
    p.leaf.grad = from_host(device, values, {rows, cols}, DType::F32, Kind::Gradient, p.name + ".grad");
    p.leaf.written = true;
  }
}

struct Timed {
  int64_t bytes, flops;   // that the kernels of one update move and compute
  double seconds, least;  // of an update; of y += x that moves as many bytes. NaN on meta
};

// Alternating runs, so that other load on the machine slows both.
static Timed time_update(Optimizer& optimizer, Parameters& parameters) {
  Device& device = current().device;
  device.meter().reset_totals();
  optimizer.step(1e-6);
  Timed t{0, device.meter().totals(OpClass::Contraction).flops, NAN, NAN};
  for (int c = 0; c < kOpClasses; ++c) t.bytes += device.meter().totals(OpClass(c)).bytes;
  if (!device.has_data()) return t;
  std::vector<Tensor> sums;
  for (const Parameter& p : parameters) sums.push_back(unshared(p.value.detach()));
  std::vector<double> update_seconds, sum_seconds;
  for (int i = 0; i < 7; ++i) {
    double start = seconds_now(device);
    optimizer.step(1e-6);
    update_seconds.push_back(seconds_now(device) - start);
    start = seconds_now(device);
    auto y = sums.begin();
    for (const Parameter& p : parameters) {
      const int64_t n = p.value.numel();
      be(p.value).scale(ctx(p.value, cost::scale(n, DType::F32)), n, p.value.in(), (y++)->add(), 1);
    }
    sum_seconds.push_back(seconds_now(device) - start);
  }
  t.seconds = summarize(update_seconds).median;
  t.least = summarize(sum_seconds).median * double(t.bytes) / double(12 * parameters.numel());
  return t;
}

static const char* passes_of(const std::string& optimizer) {
  if (optimizer == "SGD") return "g w > w";
  if (optimizer == "AdamW") return "g m v w > m v w";
  if (optimizer == "Adafactor") return "w, g, g, g w > w";
  if (optimizer == "Adafactor, given") return "g, g, g w > w";
  return "g m w > m w";
}

void update_time_table(Report& report) {
  if (std::string_view(current().device.name()) == "emu")
    return;  // an emulated device has no meaningful times
  Table table({"update of 16 matrices", "arrays per pass: read > written", "bytes per parameter",
               "y += x, same bytes", "measured", "y += x / measured"});
  const auto text = [](double seconds) { return std::isnan(seconds) ? "" : seconds_text(seconds); };
  for (const Contender& c : contenders()) {
    if (c.name == "Muon") continue;
    Parameters parameters;
    add_matrices(parameters, 16, 1024, 1024);
    const Timed t = time_update(*c.make(parameters), parameters);
    table.row({c.name, passes_of(c.name), number_text(double(t.bytes) / double(parameters.numel())),
               text(t.least), text(t.seconds), std::isnan(t.least) ? "" : percent_text(t.least / t.seconds)});
    check_bandwidth(c.name, t.least, t.seconds, report);
  }
  std::cout << "\n(b) Time of an update of 16 matrices [1024,1024], and of a y += x that moves the same "
               "bytes; median of 7 alternating runs; commas separate passes\n\n"
            << table;

  Parameters one;  // Muon is compute-bound: its products take most of the time
  add_matrices(one, 1, 1024, 2048);
  Muon muon(one);
  const Timed t = time_update(muon, one);
  const double rate = double(t.flops) / t.seconds, peak = measure_gemm_peak(current().device);
  std::cout << "\nMuon, update of one matrix " << one.begin()->value.shape() << ": " << t.flops / one.numel()
            << " FLOPs per parameter in its matrix products";
  if (!std::isnan(rate))
    std::cout << ", " << seconds_text(t.seconds) << ", " << number_text(rate * 1e-9) << " GFLOP/s";
  std::cout << "\n";
  check_muon(rate, peak, report);
}

void check_bandwidth(const std::string& optimizer, double least, double seconds, Report& report) {
  report.timing_at_least(optimizer + ": bandwidth of the update / of y += x", least / seconds, 0.7);
}
void check_muon(double rate, double peak, Report& report) {
  report.timing_at_least("Muon: FLOP/s, products in bf16 / measured fp32 GEMM peak", rate / peak, 0.6);
}

}  // namespace gradus
