// The data of the timed kernels.
#pragma once
#include "src/quant/codebook.h"
#include "tests/bench/bench.h"

namespace gradus {

struct Case {
  std::string name, shape;
  Cost cost;
  std::function<void(const Ctx&)> run;
};
using Cases = std::vector<Case>;

inline std::string text(RowShape s) { return std::to_string(s.rows) + "x" + std::to_string(s.cols); }

struct BenchCodebook : BenchBuffer {
  BenchCodebook(Device& device, const Codebook& codebook) : BenchBuffer(device, DType::U8, sizeof(Codebook)) {
    device.copy_in(out().p, &codebook, sizeof(Codebook));
  }
};

// The buffers of the cases: four of n elements of type t, rows of parameters, statistics, targets, codebooks.
struct Data {
  static constexpr int64_t kVocab = 50257, kWidest = 1 << 16;
  Data(Device& device, DType t, int64_t bytes)
      : k(device.backend()),
        t(t),
        n(std::max(bytes / size_of(t), kWidest)),
        x(device, t, n),
        y(device, t, n),
        z(device, t, n),
        u(device, t, n),
        gamma(device, t, kWidest),
        beta(device, t, kWidest),
        stats(device, t == DType::F64 ? t : DType::F32, n),
        loss(device, stats.in().t, 1),
        squares(device, DType::F64, 1),
        ids(device, DType::I32, n),
        absmax8(device, absmax_codebook(8)),
        absmax4(device, absmax_codebook(4)),
        nf4(device, nf4_codebook()),
        dynamic(device, dynamic_codebook(Sign::Signed)),
        second_moments(device, second_moment_codebook()) {}
  void randomize() {
    uint64_t stream = 1;
    for (BenchBuffer* b : {&x, &y, &z, &u, &gamma, &beta, &stats, &loss}) b->randomize(stream++);
    ids.random_ids(std::min(kVocab, n / 768));
  }
  RowShape rows_of(int64_t cols) const { return {n / cols, cols}; }

  const Backend& k;
  const DType t;
  const int64_t n;
  BenchBuffer x, y, z, u, gamma, beta, stats, loss, squares, ids;
  BenchCodebook absmax8, absmax4, nf4, dynamic, second_moments;
};

}  // namespace gradus
