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

static double measure_copy_bandwidth() {
  const size_t bytes = size_t(64) << 20;  // past any cache's share of one process
  const std::unique_ptr<Source> source = host_source();
  void *from = source->acquire(int64_t(bytes)), *to = source->acquire(int64_t(bytes));
  const Ctx none;
  const auto copy = [&] {
    cpu_backend().cast(none, int64_t(bytes / 4), {from, DType::F32}, {to, DType::F32, Write::Set});
  };
  cpu_backend().fill(none, int64_t(bytes / 4), {from, DType::F32, Write::Set}, 1.0);
  const double seconds = measure(copy, 7).median;
  source->release(from, int64_t(bytes));
  source->release(to, int64_t(bytes));
  return 2.0 * double(bytes) / seconds;
}

Machine measured_machine() {
  Device cpu("cpu");
  const double flops = measure_gemm_peak(cpu);
  return {"this CPU", "measured now", flops, flops, measure_copy_bandwidth(), 0, ""};
}

double predicted_seconds(const Meter& meter, const Machine& m) {
  double seconds = 0;
  for (const auto& [cost, times] : meter.trace()) {
    const bool matrix16 = cost.op_class == OpClass::Contraction && size_of(cost.dtype) == 2;
    const double compute = double(cost.flops) / (matrix16 ? m.matrix16_flops : m.fp32_flops);
    seconds += double(times) * std::max(compute, double(cost.bytes) / m.bandwidth);
  }
  return seconds;
}

double measure_gemm_peak(const Device& like, DType t) {
  if (!like.has_data()) return NAN;
  Device device(like.name());  // neither the caller's budget nor its meter has to do with this
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
