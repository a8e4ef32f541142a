// The harness of the kernels: products, attention and optimizers.
#pragma once
#include "tests/fuzz/kernels.h"

namespace gradus::fuzz {

inline Call matmul(Draw& d) {
  MatmulShape s{.M = d.size(70), .N = d.size(70), .K = d.size(130), .lda = 0, .ldb = 0, .ldc = 0};
  s.ta = d.choices.yes() ? Trans::Yes : Trans::No, s.tb = d.choices.yes() ? Trans::Yes : Trans::No;
  s.alpha = d.choices.one_of(std::array{1.f, 0.5f, -2.f});
  // The elements of a rows x cols matrix with gaps between its rows, up to its last element.
  const auto stored = [&](Trans t, int64_t rows, int64_t cols, int64_t& ld) {
    if (t == Trans::Yes) std::swap(rows, cols);
    ld = cols + d.pick(0, 3);
    return rows == 0 || cols == 0 ? 0 : (rows - 1) * ld + cols;
  };
  int64_t a = stored(s.ta, s.M, s.K, s.lda), b = stored(s.tb, s.K, s.N, s.ldb),
          c = stored(Trans::No, s.M, s.N, s.ldc);
  for (Batch& batch : s.batch) {
    batch = {d.pick(1, 2), a, b, c};
    a *= batch.count, b *= batch.count, c *= batch.count;
  }
  const bool fp32 = d.t == DType::F32 || d.choices.yes();
  return {"matmul",
          cost::matmul(s, d.t),
          {d.array(d.t, a), d.array(d.t, b)},
          {{fp32 ? DType::F32 : d.t, c, kEps * double(s.K + 2) * 8 * double(s.K)}},
          [s](const Backend& k, CallCtx& ctx, In in, Outs out) { k.matmul(ctx, s, in[0], in[1], out[0]); }};
}

inline AttentionShape attention_shape(Draw& d) {
  const int64_t KV = d.pick(1, 3), group = d.choices.yes() ? 1 : d.pick(1, 4);
  AttentionShape s{.B = d.pick(1, 2),
                   .H = KV * group,
                   .KV = KV,
                   .T = d.pick(1, 40),
                   .D = d.pick(1, 20),
                   .qkv = {},
                   .y = {},
                   .scale = 1};
  if (d.pick(0, 15) == 0) s.T = d.pick(1, 140), s.H = s.KV = 1;
  if (d.pick(0, 15) == 0) s.D = d.pick(60, 128), s.H = s.KV = 1;
  const int64_t C = s.H * s.D, qkv = d.choices.yes() ? C : C + 2 * s.KV * s.D, y = C + d.pick(0, 1);
  s.qkv = {s.T * qkv, s.D, qkv}, s.y = {s.T * y, s.D, y};
  s.scale = 1 / std::sqrt(float(s.D));
  s.mask = d.choices.yes() ? Mask::Causal : Mask::None;
  s.dropout = d.choices.yes() ? 0.25f : 0;
  s.key = d.key();
  return s;
}
// The elements of a tensor with this number of heads, from its first to its last one.
inline int64_t extent(const AttentionShape& s, int64_t heads, const HeadLayout& l) {
  return (s.B - 1) * l.batch + (heads - 1) * l.head + (s.T - 1) * l.time + s.D;
}
// Probabilities may be rounded to t before they are used, and scores are sums of D products. The weights of a
// sum over T keys sum to at most 1/(1-p). (The bound of tests/kernels/attention_test.cpp.)
inline double attention_error(const Draw& d, const AttentionShape& s) {
  return 16 * epsilon_of(d.t) + 64 * double(s.D) * kEps;
}

inline Call attention(Draw& d) {
  const AttentionShape s = attention_shape(d);
  const int64_t n = extent(s, s.KV, s.qkv), rows = s.B * s.H * s.T;
  const double error = attention_error(d, s);
  const std::vector<Array> qkv{d.array(d.t, extent(s, s.H, s.qkv), -1, 1), d.array(d.t, n, -1, 1),
                               d.array(d.t, n, -1, 1)};
  if (d.choices.yes())
    return {"attention_plain_fwd",
            cost::attention_plain_fwd(s, d.t),
            qkv,
            {{d.t, rows * s.T, error}, {d.t, extent(s, s.H, s.y), 4 * error}},
            [s](const Backend& b, CallCtx& c, In in, Outs out) {
              b.attention_plain_fwd(c, s, in[0], in[1], in[2], out[0], out[1]);
            }};
  return {"attention_flash_fwd",
          cost::attention_flash_fwd(s, d.t),
          qkv,
          {{d.t, extent(s, s.H, s.y), 4 * error}, {DType::F32, rows, error}},
          [s](const Backend& b, CallCtx& c, In in, Outs out) {
            b.attention_flash_fwd(c, s, in[0], in[1], in[2], out[0], out[1]);
          }};
}

inline Call attention_bwd(Draw& d) {
  const AttentionShape s = attention_shape(d);
  const int64_t of_q = extent(s, s.H, s.qkv), n = extent(s, s.KV, s.qkv), m = extent(s, s.H, s.y),
                rows = s.B * s.H * s.T;
  const double error = 32 * attention_error(d, s), of_group = double(s.group()) * error;  // of a sum over it
  const Array q = d.array(d.t, of_q, -1, 1), k = d.array(d.t, n, -1, 1), v = d.array(d.t, n, -1, 1),
              dy = d.array(d.t, m, -1, 1);
  const std::vector<Result> gradients{{d.t, of_q, error}, {d.t, n, of_group}, {d.t, n, of_group}};
  const Backend& cpu = cpu_backend();
  if (d.choices.yes()) {
    const Array probs =
        computed(d, d.t, rows * s.T, cost::attention_plain_fwd(s, d.t), [&](CallCtx& c, Out out) {
          Array y = d.array(d.t, m);
          cpu.attention_plain_fwd(c, s, q.in(), k.in(), v.in(), out, y.out(Write::Set));
        });
    return {"attention_plain_bwd",
            cost::attention_plain_bwd(s, d.t),
            {q, k, v, probs, dy},
            gradients,
            [s](const Backend& b, CallCtx& c, In in, Outs out) {
              b.attention_plain_bwd(c, s, in[0], in[1], in[2], in[3], in[4], out[0], out[1], out[2]);
            }};
  }
  const Cost forward = cost::attention_flash_fwd(s, d.t);
  const Array y = computed(d, d.t, m, forward, [&](CallCtx& c, Out out) {
    cpu.attention_flash_fwd(c, s, q.in(), k.in(), v.in(), out, {nullptr, DType::F32});
  });
  const Array lse = computed(d, DType::F32, rows, forward, [&](CallCtx& c, Out out) {
    cpu.attention_flash_fwd(c, s, q.in(), k.in(), v.in(), {nullptr, d.t}, out);
  });
  return {"attention_flash_bwd",
          cost::attention_flash_bwd(s, d.t),
          {q, k, v, y, lse, dy},
          gradients,
          [s](const Backend& b, CallCtx& c, In in, Outs out) {
            b.attention_flash_bwd(c, s, in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1], out[2]);
          }};
}

// Weights are at most 1, numbers at most 2, and log-sum-exps at most 8 in absolute value.
inline Call attention_merge(Draw& d) {
  AttentionShape s = attention_shape(d);
  const int64_t rows = s.B * s.H * s.T;
  const double error = 64 * 8 * kEps;
  return {"attention_merge_inplace",
          {},
          {d.array(d.t, rows * s.D), d.array(DType::F32, rows, -8, 8)},
          {{DType::F32, extent(s, s.H, s.y), 4 * error, true}, {DType::F32, rows, error, true, -8, 8}},
          [s](const Backend& b, CallCtx& c, In in, Outs out) {
            b.attention_merge_inplace(c, s, in[0], in[1], out[0], out[1]);
          }};
}

// Targets for `cols` columns of a larger vocabulary: some are in other columns, some do not count.
inline Array targets_of_part(Draw& d, int64_t n, int64_t cols) {
  std::vector<double> v(static_cast<size_t>(n));
  for (double& x : v) {
    x = double(d.rng.below(uint64_t(cols) + 2)) - 1;
    if (x == double(cols)) x = kElsewhere;
  }
  return {DType::I32, v, 0};
}
inline Call cross_entropy_of_part(Draw& d) {
  RowShape s = d.rows();
  s.rows = std::max<int64_t>(s.rows, 1);
  const double error = kEps * (double(s.cols) + 64) * 16;
  const Array targets = targets_of_part(d, s.rows, s.cols), count = d.array(DType::F32, 1, 1, 40);
  switch (d.pick(0, 2)) {
    case 0:
      return {"cross_entropy_fwd",
              cost::cross_entropy_fwd(s, d.t),
              {d.array(d.t, s.rows * s.cols, -4, 4), targets, count},
              {{DType::F32, 1, double(s.rows) * (error + kEps * double(s.rows) * 16)},
               {DType::F32, s.rows, error}},
              [s](const Backend& b, CallCtx& c, In in, Outs out) {
                b.cross_entropy_fwd(c, s, in[0], in[1], in[2], out[0], out[1]);
              }};
    case 1:
      return {"cross_entropy_sums",
              {},
              {d.array(d.t, s.rows * s.cols, -4, 4), targets, d.array(DType::F32, s.rows, -8, 4),
               d.array(DType::F32, s.rows, 4, 8)},
              {{DType::F32, 2 * s.rows, 64 * kEps}},
              [s](const Backend& b, CallCtx& c, In in, Outs out) {
                b.cross_entropy_sums(c, s, in[0], in[1], in[2], in[3], out[0]);
              }};
    default:
      return {"cross_entropy_of_sums",
              cost::cross_entropy_of_sums(s.rows, DType::F32),
              {targets, count, d.array(DType::F32, s.rows, -8, 8), d.array(DType::F32, 2 * s.rows, 1, 8)},
              {{DType::F32, 1, double(s.rows) * (error + kEps * double(s.rows) * 16)},
               {DType::F32, s.rows, error}},
              [s](const Backend& b, CallCtx& c, In in, Outs out) {
                b.cross_entropy_of_sums(c, s.rows, in[0], in[1], in[2], in[3], out[0], out[1]);
              }};
  }
}

// adamw, or sgd with or without momentum, with one to three parameters.
inline Call update(Draw& d) {
  const bool adamw = d.choices.yes(), momentum = adamw || d.choices.yes(),
             master = d.t != DType::F32 && d.choices.yes();
  const int64_t count = d.pick(1, 3);
  const DType state = d.t_or_fp32();
  Call call{adamw ? "adamw" : "sgd", {}, {}, {}, {}};
  std::vector<int64_t> sizes;
  // The steps are at most 48 times the learning rate, 1/8: for adamw 2/(1-b1^3) / sqrt(1/4).
  constexpr double kError = 16 * kEps * 8;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t n = d.size(300);
    sizes.push_back(n);
    call.in.push_back(d.array(d.t_or_fp32(), n));
    call.out.push_back({d.t, n, kError, true});
    call.out.push_back({state, momentum ? n : 0, kError, true, -1, 1});
    call.out.push_back({state, adamw ? n : 0, kError, true, 0.25, 2});
    call.out.push_back({DType::F32, master ? n : 0, kError, true});
  }
  call.run = [=, decay = d.choices.yes()](const Backend& b, CallCtx& c, In in, Outs out) {
    const auto if_there = [](bool there, Out o) { return there ? o : Out{nullptr, o.t, o.w}; };
    std::vector<ParamUpdate> list;
    for (size_t i = 0; i < sizes.size(); ++i)
      list.push_back({sizes[i], out[4 * i], in[i], if_there(momentum, out[4 * i + 1]),
                      if_there(adamw, out[4 * i + 2]), if_there(master, out[4 * i + 3]), decay});
    if (adamw)
      b.adamw(c, {int64_t(list.size()), list.data()}, {.weight_decay = 0.1f});
    else
      b.sgd(c, {int64_t(list.size()), list.data()}, {.momentum = 0.5f, .weight_decay = 0.1f});
  };
  return call;
}

// Compares the two results, which the kernel writes to the scalars of the update.
inline Call clip_factor(Draw& d) {
  Call call{"clip_factor", cost::sum_squares(1, d.t), {}, {{DType::F32, 2, 16 * 64 * kEps, true}}, {}};
  std::vector<int64_t> sizes;
  for (int64_t i = 0, count = d.pick(1, 3); i < count; ++i) {
    sizes.push_back(d.size(300));
    call.in.push_back(d.array(d.t_or_fp32(), sizes.back()));
  }
  call.run = [sizes, most = float(d.pick(0, 3))](const Backend& b, CallCtx& c, In in, Outs out) {
    double sum = 0;
    b.sum_squares(c, {int64_t(in.size()), in.data(), sizes.data()}, {&sum, DType::F64, Write::Set});
    b.clip_factor(c, 1, {&sum, DType::F64}, most);
    const auto [norm, factor] = std::pair(c.update.grad_norm, c.update.clip_factor);
    std::memcpy(out[0].p, std::array{norm, factor}.data(), 2 * sizeof(float));
  };
  return call;
}

}  // namespace gradus::fuzz
