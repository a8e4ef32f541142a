#include "src/train/machine.h"

#include <cmath>

#include "src/core/named.h"
#include "src/core/rng.h"
#include "src/memory/device_timing.h"
#include "src/tensor/call.h"
#include "src/tensor/tensor.h"

namespace gradus {

constexpr double kTera = 1e12, kGiga = 1e9;

const std::vector<Machine>& published_machines() {
  static const std::vector<Machine> machines = {
      {"T4", "NVIDIA T4 data sheet, 2019", 8.1 * kTera, 65 * kTera, 320 * kGiga, int64_t(16) << 30, "pcie3"},
      {"V100", "NVIDIA V100 SXM2 data sheet, 2020", 15.7 * kTera, 125 * kTera, 900 * kGiga, int64_t(32) << 30,
       "nvlink2"},
      {"A100", "NVIDIA A100 80GB SXM data sheet, 2021", 19.5 * kTera, 312 * kTera, 2039 * kGiga,
       int64_t(80) << 30, "nvlink"},
      {"H100", "NVIDIA H100 SXM data sheet, 2023", 67 * kTera, 989.4 * kTera, 3350 * kGiga, int64_t(80) << 30,
       "nvlink4"},
      {"H200", "NVIDIA H200 SXM data sheet, 2024", 67 * kTera, 989.4 * kTera, 4800 * kGiga,
       int64_t(141'000'000'000), "nvlink4"},
  };
  return machines;
}

const Machine& machine_called(std::string_view name) { return named(name, published_machines(), "machine"); }

static double measure_copy_bandwidth(const Device& like) {
  Device device(like.name());
  // Larger than the share of any cache that one process gets.
  const int64_t n = (device.allocator().source().on_host() ? int64_t(64) << 20 : int64_t(256) << 20) / 4;
  Tensor from(device, {n}, DType::F32, Kind::Other, "bandwidth"), to = empty_like(from, "bandwidth");
  be(from).fill(ctx(from, cost::fill(n, DType::F32)), n, from.set(), 1.0);
  const double seconds = measure(
                             device, [&] { cast(from, to.set()); }, 7)
                             .median;
  return double(from.bytes() + to.bytes()) / seconds;
}

Machine measured_machine(const Device& device) {
  const std::string name = device.name();
  if (name == "emu" || name == "meta") return {name, "no machine", NAN, NAN, NAN, 0, ""};
  const double flops = measure_gemm_peak(device);
  return {name == "cpu" ? "this CPU" : "this GPU",
          "measured now",
          flops,
          name == "cpu" ? flops : measure_gemm_peak(device, DType::BF16),
          measure_copy_bandwidth(device),
          0,
          ""};
}

double least_seconds(const Cost& cost, const Machine& m) {
  const bool matrix16 = cost.op_class == OpClass::Contraction && size_of(cost.dtype) == 2;
  const double compute = double(cost.flops) / (matrix16 ? m.matrix16_flops : m.fp32_flops);
  return std::max(compute, double(cost.bytes) / m.bandwidth);
}

double predicted_seconds(const Meter& meter, const Machine& m) {
  double seconds = 0;
  for (const auto& [cost, times] : meter.trace()) seconds += double(times) * least_seconds(cost, m);
  return seconds;
}

double measure_gemm_peak(const Device& like, DType t) {
  if (!like.has_data()) return NAN;
  Device device(like.name());  // independent of the caller's budget and meter
  using Sizes = std::array<int64_t, 3>;
  const std::vector<Sizes> sizes =
      device.allocator().source().on_host()
          ? std::vector<Sizes>{{1024, 1024, 1024}, {1024, 3072, 768}, {512, 512, 512}}
          : std::vector<Sizes>{{4096, 4096, 4096}, {4096, 4096, 1024}, {2048, 2048, 2048}};
  double best = 0;
  for (const auto& [M, N, K] : sizes) {
    const MatmulShape s{.M = M, .N = N, .K = K, .tb = Trans::Yes, .lda = K, .ldb = K, .ldc = N};
    Rng rng(1, 9);
    const auto random = [&](int64_t rows, int64_t cols) {
      std::vector<float> values(rows * cols);
      for (float& v : values) v = float(rng.normal());
      return from_host(device, values, {rows, cols}, t, Kind::Other, "GEMM peak");
    };
    const Tensor a = random(M, K), b = random(N, K);
    Tensor c = empty(a, {M, N}, "GEMM peak");
    const Timing time = measure(
        device, [&] { be(a).matmul(ctx(a, cost::matmul(s, a.dtype())), s, a.in(), b.in(), c.set()); }, 7,
        0.2);
    best = std::max(best, 2.0 * double(M) * double(N) * double(K) / time.median);
  }
  return best;
}

}  // namespace gradus
