// The kernels that Llama adds: RMSNorm, SwiGLU, and rotary positions of grouped heads with any base, against
// formulas in fp64.
#include "tests/kernels/kernel_contract.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L21_Kernels);

constexpr float kEps = 3e-4f;
// What rmsnorm must give, and by how many roundings arithmetic may be off: a sum of n terms by n roundings of
// its terms' sizes.
struct RmsNorm {
  RmsNorm(RowShape s, DType T)
      : s(s),
        T(T),
        x(Buffer::random(T, s.rows * s.cols, 1)),
        gamma(Buffer::random(T, s.cols, 2)),
        dy(Buffer::random(T, s.rows * s.cols, 3)),
        stats(Buffer::zeros(stat(T), 0)) {
    const std::vector<double> vx = x.values(), g = gamma.values();
    const double cols = double(s.cols);
    for (int64_t r = 0; r < s.rows; ++r) {
      double mean = s.cols > 0 ? 0 : NAN;  // that of no numbers
      for (int64_t c = 0; c < s.cols; ++c) mean += vx[r * s.cols + c] * vx[r * s.cols + c] / cols;
      const double rstd = 1 / std::sqrt(mean + double(kEps));
      rstds.value.push_back(rstd), rstds.error.push_back((cols + 6) * rstd);
      for (int64_t c = 0; c < s.cols; ++c) {
        y.value.push_back(vx[r * s.cols + c] * rstd * g[c]);
        y.error.push_back((cols + 8) * std::abs(y.value.back()));
      }
    }
    backward(vx, g);
  }
  void backward(const std::vector<double>& vx, const std::vector<double>& g) {  // of the stored statistics
    stats = Buffer(stat(T), rstds.value);
    const std::vector<double> vdy = dy.values(), of = stats.values();
    const double cols = double(s.cols), rows = double(s.rows);
    for (int64_t r = 0; r < s.rows; ++r) {
      const double *row = &vx[r * s.cols], *grad = &vdy[r * s.cols], rstd = of[r];
      double dot = 0, size = 0;
      for (int64_t c = 0; c < s.cols; ++c) {
        const double xhat = row[c] * rstd, term = grad[c] * g[c] * xhat / cols;
        dot += term, size += std::abs(term);
        dgamma.value[c] += grad[c] * xhat, dgamma.error[c] += (rows + 4) * std::abs(grad[c] * xhat);
      }
      for (int64_t c = 0; c < s.cols; ++c) {
        const double xhat = row[c] * rstd, d = grad[c] * g[c];
        dx.value.push_back(rstd * (d - xhat * dot));
        dx.error.push_back(rstd * (4 * std::abs(d) + (cols + 8) * std::abs(xhat) * size));
      }
    }
  }
  RowShape s;
  DType T;
  Buffer x, gamma, dy, stats;
  Expected y{"y", {T}, {}}, rstds{"stats", {stat(T)}, {}}, dx{"dx", {T}, {}};
  Expected dgamma{"dgamma", t_or_fp32(T), std::vector<double>(s.cols), std::vector<double>(s.cols)};
};

void rmsnorm_of(RowShape s, std::vector<Way> ways(const std::vector<Expected>&)) {
  for (const DType T : float_types()) {
    const RmsNorm n(s, T);
    const TestedCall fwd{"rmsnorm_fwd",
                         {n.y, n.rstds},
                         [&](const Ctx& ctx, const std::vector<Out>& y) {
                           table().rmsnorm_fwd(ctx, s, n.x.in(), n.gamma.in(), y[0], y[1], kEps);
                         },
                         cost::rmsnorm_fwd(s, T)};
    const TestedCall bwd{"rmsnorm_bwd",
                         {n.dx, n.dgamma},
                         [&](const Ctx& ctx, const std::vector<Out>& y) {
                           table().rmsnorm_bwd(ctx, s, n.x.in(), n.gamma.in(), n.stats.in(), n.dy.in(), y[0],
                                               y[1]);
                         },
                         cost::rmsnorm_bwd(s, T)};
    for (const TestedCall& k : {fwd, bwd}) ASSERT_NO_FATAL_FAILURE(expect_contract(k, ways(k.outputs)));
  }
}
TEST_P(L21_Kernels, RmsNorm) {
  for (const RowShape s : row_shapes()) rmsnorm_of(s, some_ways);
  for (const RowShape s : {RowShape{7, 2}, {3, 0}, {2, 256}}) rmsnorm_of(s, some_ways);
}
TEST_P(L21_Kernels, RmsNormOfEverySubsetOfOutputs) { rmsnorm_of({35, 9}, all_ways); }

}  // namespace
}  // namespace gradus
