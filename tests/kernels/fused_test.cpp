// Fused kernels: bitwise equal to the two kernels that they replace, if no rounding lies between these; and
// gelu with a bias against its formula in fp64.
#include "tests/kernels/kernel_contract.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L16_Fused);

constexpr float kEps = 3e-4f;

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double u = std::sqrt(2 / M_PI), t = std::tanh(u * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * u * (1 + 3 * 0.044715 * x * x);
}

TEST_P(L16_Fused, BiasGelu) {
  for (const DType T : float_types())
    for (const RowShape s : {RowShape{1, 1}, {3, 257}, {35, 9}, {2, 1025}, {0, 4}, {70, 64}}) {
      const int64_t n = s.rows * s.cols;
      const Buffer x = Buffer::random(T, n, 1), b = Buffer::random(T, s.cols, 2),
                   dy = Buffer::random(T, n, 3);
      const std::vector<double> vx = x.values(), vb = b.values(), vdy = dy.values();
      Expected y{"y", {T}, {}}, dx{"dx", {T}, {}};
      Expected db{"db", t_or_fp32(T), std::vector<double>(s.cols), std::vector<double>(s.cols)};
      for (int64_t i = 0; i < n; ++i) {
        const int64_t c = i % s.cols;
        const double z = vx[i] + vb[c], slope = vdy[i] * gelu_slope(z);
        // x + b has a rounding error of its terms' sizes, and gelu's slope is at most 1.13
        const double before = 1.2 * (std::abs(vx[i]) + std::abs(vb[c]));
        y.value.push_back(gelu(z)), y.error.push_back(16 * std::abs(gelu(z)) + before);
        dx.value.push_back(slope),
            dx.error.push_back(64 * std::abs(slope) + (16 + before) * std::abs(vdy[i]));
        // (terms of the slope may cancel)
        db.value[c] += slope, db.error[c] += dx.error.back() + double(s.rows) * std::abs(slope);
      }
      const TestedCall fwd{"bias_gelu_fwd", {y}, [&](const Ctx& ctx, const std::vector<Out>& out) {
                             table().bias_gelu_fwd(ctx, s, x.in(), b.in(), out[0]);
                           }};
      const TestedCall bwd{"bias_gelu_bwd",
                           {dx, db},
                           [&](const Ctx& ctx, const std::vector<Out>& out) {
                             table().bias_gelu_bwd(ctx, s, x.in(), b.in(), dy.in(), out[0], out[1]);
                           },
                           cost::bias_gelu_bwd(s, T)};
      for (const TestedCall& k : {fwd, bwd}) ASSERT_NO_FATAL_FAILURE(expect_contract(k, all_ways(k.outputs)));
    }
}

Expected exactly(const char* name, std::vector<DType> types, const Buffer& of) {
  return {name, std::move(types), of.values()};
}

TEST_P(L16_Fused, AddLayerNormIsAddAndLayerNormToTheBit) {
  RecordProperty("exercise", "16.1");
  for (const DType T : float_types())
    for (const RowShape s : {RowShape{1, 1}, {3, 257}, {35, 9}, {2, 1025}, {0, 4}}) {
      const int64_t n = s.rows * s.cols;
      const Buffer a = Buffer::random(T, n, 1), b = Buffer::random(T, n, 2),
                   gamma = Buffer::random(T, s.cols, 3), beta = Buffer::random(T, s.cols, 4),
                   dy = Buffer::random(T, n, 5), dsum = Buffer::random(T, n, 6);
      Buffer sum = Buffer::zeros(T, n), y = sum, stats = Buffer::zeros(stat(T), 2 * s.rows), dx = dsum,
             no_dsum = sum, dgamma = Buffer::zeros(T, s.cols), dbeta = dgamma;
      DirtyCtx ctx(cost::layernorm_bwd(s, T));
      table().add(ctx, n, a.in(), b.in(), sum.out(Write::Set));
      table().layernorm_fwd(ctx, s, sum.in(), gamma.in(), beta.in(), y.out(Write::Set), stats.out(Write::Set),
                            kEps);
      for (Buffer* to : {&dx, &no_dsum})
        table().layernorm_bwd(ctx, s, sum.in(), gamma.in(), stats.in(), dy.in(),
                              to->out(to == &dx ? Write::Add : Write::Set), dgamma.out(Write::Set),
                              dbeta.out(Write::Set));
      Buffer got_sum = Buffer::random(T, n, 7);
      table().add_layernorm_fwd(ctx, s, a.in(), b.in(), gamma.in(), beta.in(), got_sum.out(Write::Set),
                                {nullptr, T}, {nullptr, stat(T)}, kEps);
      ASSERT_EQ(got_sum.values(), sum.values()) << "row r of the sum is row r of a + row r of b";
      const TestedCall fwd{"add_layernorm_fwd",
                           {exactly("y", {T}, y), exactly("stats", {stat(T)}, stats)},
                           [&](const Ctx& c, const std::vector<Out>& out) {
                             table().add_layernorm_fwd(c, s, a.in(), b.in(), gamma.in(), beta.in(),
                                                       got_sum.out(Write::Set), out[0], out[1], kEps);
                           }};
      // With 16 bits, Add adds the unrounded result, which is not what Set wrote.
      const auto ways = [&](const std::vector<Expected>& outputs) {
        return size_of(T) > 2 ? all_ways(outputs) : std::vector<Way>{Way(outputs.size(), 1)};
      };
      ASSERT_NO_FATAL_FAILURE(expect_contract(fwd, ways(fwd.outputs)));
      for (const bool with_dsum : {true, false}) {
        const TestedCall bwd{"add_layernorm_bwd",
                             {exactly("dx", {T}, with_dsum ? dx : no_dsum), exactly("dgamma", {T}, dgamma),
                              exactly("dbeta", {T}, dbeta)},
                             [&](const Ctx& c, const std::vector<Out>& out) {
                               table().add_layernorm_bwd(c, s, sum.in(), gamma.in(), stats.in(), dy.in(),
                                                         with_dsum ? dsum.in() : CBuf{nullptr, T}, out[0],
                                                         out[1], out[2]);
                             },
                             cost::add_layernorm_bwd(s, T)};
        ASSERT_NO_FATAL_FAILURE(expect_contract(bwd, ways(bwd.outputs)));
      }
    }
}

TEST_P(L16_Fused, ScaleByRatioInPlace) {
  for (const DType T : float_types())
    for (const double ratio : {1.0, 0.5, -3.0})
      for (const int64_t n : {0, 1, 1000, 20000}) {
        Buffer x = Buffer::random(T, n, 1);
        const Buffer a(stat(T), {2 * ratio}), b(stat(T), {2.0});
        Expected y{"x", {T}, x.values()};
        for (double& v : y.value) v *= ratio;
        DirtyCtx ctx;
        table().scale_by_ratio_inplace(ctx, n, a.in(), b.in(), x.out(Write::Set));
        ASSERT_NO_FATAL_FAILURE(expect_written("scale_by_ratio_inplace", y, T, Write::Set, {}, x.values()));
      }
}

TEST_P(L16_Fused, CountTargets) {
  for (const int64_t n : {0, 1, 257, 3000}) {
    SharedVector<int32_t> targets = SharedVector<int32_t>(n);
    double counted = 0;
    for (int64_t i = 0; i < n; ++i) {
      targets[i] = i % 3 == 1 ? -1 : int32_t(i % 5);
      counted += targets[i] >= 0;
    }
    const TestedCall call{"count_targets",
                          {{"count", {DType::F32}, {counted}}},
                          [&](const Ctx& ctx, const std::vector<Out>& out) {
                            table().count_targets(ctx, n, {targets.data(), DType::I32}, out[0]);
                          }};
    ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
  }
}

}  // namespace
}  // namespace gradus
