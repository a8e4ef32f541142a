// Kernels: random shapes, types, alignments, writes and wanted outputs, the same on cpu and emu. The allowed
// error is that of the roundings in fp32: their number times the absolute value of the rounded numbers.
// Inputs are between -2 and 2, so bounds of all absolute values are known.
#include "tests/fuzz/kernels_experts.h"
#include "tests/fuzz/kernels_llama.h"

namespace gradus::fuzz {

std::string sample(Rng& rng) { return random_bytes(rng, 60); }

namespace {

Call elementwise(Draw& d) {
  struct Unary {
    const char* name;
    void (*Backend::*f)(const Ctx&, int64_t, CBuf, Out);
  };
  struct Binary {
    const char* name;
    void (*Backend::*f)(const Ctx&, int64_t, CBuf, CBuf, Out);
  };
  static constexpr Unary kUnary[] = {{"gelu_fwd", &Backend::gelu_fwd},
                                     {"gelu_erf_fwd", &Backend::gelu_erf_fwd},
                                     {"tanh_fwd", &Backend::tanh_fwd},
                                     {"cast", &Backend::cast}};
  static constexpr Binary kBinary[] = {{"gelu_bwd", &Backend::gelu_bwd},
                                       {"gelu_erf_bwd", &Backend::gelu_erf_bwd},
                                       {"tanh_bwd", &Backend::tanh_bwd},
                                       {"add", &Backend::add},
                                       {"multiply", &Backend::multiply}};
  const int64_t n = d.size(600);
  constexpr double kError = 32 * 8 * kEps;  // fewer than 32 roundings of numbers of absolute value <= 8
  if (d.choices.yes()) {
    const Unary& k = d.choices.one_of(kUnary);
    const DType to =
        k.f == &Backend::cast ? d.choices.one_of(std::array{DType::F32, DType::BF16, DType::F16}) : d.t;
    return {k.name,
            {},
            {d.array(d.t, n)},
            {{to, n, kError}},
            [n, f = k.f](const Backend& b, CallCtx& c, In in, Outs out) { (b.*f)(c, n, in[0], out[0]); }};
  }
  const Binary& k = d.choices.one_of(kBinary);
  return {
      k.name,
      {},
      {d.array(d.t, n), d.array(d.t, n)},
      {{d.t, n, kError}},
      [n, f = k.f](const Backend& b, CallCtx& c, In in, Outs out) { (b.*f)(c, n, in[0], in[1], out[0]); }};
}

Call scaled(Draw& d) {
  const RowShape s = d.rows();
  const int64_t n = s.rows * s.cols;
  const float factor = float(d.pick(0, 8)) / 8;
  switch (d.pick(0, 2)) {
    case 0:
      return {"fill", {}, {}, {{d.t, n, 0}}, [=](const Backend& b, CallCtx& c, In, Outs out) {
                b.fill(c, n, out[0], double(factor));
              }};
    case 1:
      return {"scale",
              {},
              {d.array(d.t, n)},
              {{d.t, n, 2 * kEps}},
              [=](const Backend& b, CallCtx& c, In in, Outs out) { b.scale(c, n, in[0], out[0], factor); }};
    default:
      return {"dropout",
              {},
              {d.array(d.t, n)},
              {{d.t, n, 4 * 16 * kEps}},
              [=, key = d.key()](const Backend& b, CallCtx& c, In in, Outs out) {
                b.dropout(c, s, in[0], out[0], factor, key);
              }};
  }
}

Call bias(Draw& d) {
  const RowShape s = d.rows();
  const int64_t n = s.rows * s.cols;
  if (d.choices.yes())
    return {"bias_fwd",
            {},
            {d.array(d.t, n), d.array(d.t, s.cols)},
            {{d.t, n, 4 * kEps}},
            [s, no_x = d.choices.yes()](const Backend& b, CallCtx& c, In in, Outs out) {
              b.bias_fwd(c, s, no_x ? CBuf{nullptr, in[0].t} : in[0], in[1], out[0]);
            }};
  return {"bias_bwd",
          cost::bias_bwd(s, d.t),
          {d.array(d.t, n)},
          {{d.t_or_fp32(), s.cols, 2 * kEps * double(s.rows * s.rows)}},
          [s](const Backend& b, CallCtx& c, In in, Outs out) { b.bias_bwd(c, s, in[0], out[0]); }};
}

Call softmax(Draw& d) {
  const RowShape s = d.rows();
  const int64_t n = s.rows * s.cols;
  if (d.choices.yes())
    return {"softmax_fwd",
            {},
            {d.array(d.t, n, -4, 4)},
            {{d.t, n, kEps * (double(s.cols) + 64)}},
            [s](const Backend& b, CallCtx& c, In in, Outs out) { b.softmax_fwd(c, s, in[0], out[0]); }};
  // y has probabilities, which sum to at most 2, so y dy sums to at most 4.
  const double y = 2 / double(s.cols);
  return {"softmax_bwd",
          {},
          {d.array(d.t, n, 0, y), d.array(d.t, n)},
          {{d.t, n, kEps * (double(s.cols) + 8) * 4 * y}},
          [s](const Backend& b, CallCtx& c, In in, Outs out) { b.softmax_bwd(c, s, in[0], in[1], out[0]); }};
}

// The statistics of the rows x, which layernorm_bwd reads.
Array statistics(Draw& d, RowShape s, const Array& x, const Array& gamma, const Array& beta) {
  return computed(d, DType::F32, 2 * s.rows, {}, [&](CallCtx& c, Out out) {
    cpu_backend().layernorm_fwd(c, s, x.in(), gamma.in(), beta.in(), {nullptr, d.t, Write::Set}, out, 1e-5f);
  });
}
// The largest rstd of a row. xhat is at most sqrt(cols), and the mean has the error of about cols roundings,
// which rstd magnifies.
double steepness(const Array& stats) {
  const std::vector<double> v = stats.values();
  double steep = 1;
  for (size_t i = 1; i < v.size(); i += 2) steep = std::max(steep, v[i]);
  return steep;
}

Call layernorm(Draw& d) {
  const RowShape s = d.rows();
  const int64_t n = s.rows * s.cols;
  Array x = d.array(d.t, n), gamma = d.array(d.t, s.cols), beta = d.array(d.t, s.cols);
  const Array stats = statistics(d, s, x, gamma, beta);
  const double steep = steepness(stats);
  const double rows = double(s.rows), xhat = std::sqrt(double(s.cols)) + 1,
               step = 8 * kEps * (double(s.cols) + 8);
  if (d.choices.yes())
    return {"layernorm_fwd",
            {},
            {x, gamma, beta},
            {{d.t, n, step * (1 + steep) * xhat}, {DType::F32, 2 * s.rows, step * (1 + steep) * (1 + steep)}},
            [s](const Backend& b, CallCtx& c, In in, Outs out) {
              b.layernorm_fwd(c, s, in[0], in[1], in[2], out[0], out[1], 1e-5f);
            }};
  const double sums = 2 * kEps * rows * (rows + 8) * (xhat + 2 * steep);
  return {"layernorm_bwd",
          cost::layernorm_bwd(s, d.t),
          {x, gamma, stats, d.array(d.t, n)},
          {{d.t, n, step * steep * (8 + 4 * xhat * xhat)},
           {d.t_or_fp32(), s.cols, sums},
           {d.t_or_fp32(), s.cols, sums}},
          [s](const Backend& b, CallCtx& c, In in, Outs out) {
            b.layernorm_bwd(c, s, in[0], in[1], in[2], in[3], out[0], out[1], out[2]);
          }};
}

Call cross_entropy(Draw& d) {
  RowShape s = d.rows();
  s.rows = std::max<int64_t>(s.rows, 1);  // the mean over no rows is not defined
  const int64_t n = s.rows * s.cols;
  const double error = kEps * (double(s.cols) + 64) * 16;
  const Array logits = d.array(d.t, n, -4, 4), targets = d.ids(s.rows, s.cols);
  if (d.choices.yes())
    return {"cross_entropy_fwd",
            cost::cross_entropy_fwd(s, d.t),
            {logits, targets},
            {{DType::F32, 1, error + kEps * double(s.rows) * 16}, {DType::F32, s.rows, error}},
            [s](const Backend& b, CallCtx& c, In in, Outs out) {
              b.cross_entropy_fwd(c, s, in[0], in[1], {}, out[0], out[1]);
            }};
  // The logits are the previous numbers of the output; any log-sum-exp that is large enough is valid.
  return {"cross_entropy_bwd_inplace",
          {},
          {targets, d.array(DType::F32, s.rows, 4, 8), d.array(DType::F32, 1)},
          {{d.t, n, 2 * error / double(s.rows), true, -4, 4}},
          [s](const Backend& b, CallCtx& c, In in, Outs out) {
            b.cross_entropy_bwd_inplace(c, s, in[0], {}, in[1], in[2], out[0]);
          }};
}

Call embedding(Draw& d) {
  const RowShape s = d.rows();
  const int64_t n = s.rows * s.cols, vocab = d.pick(1, 40);
  if (d.choices.yes())
    return {"embedding_fwd",
            {},
            {d.array(d.t, vocab * s.cols), d.ids(s.rows, vocab)},
            {{d.t, n, 0}},
            [=](const Backend& b, CallCtx& c, In in, Outs out) {
              b.embedding_fwd(c, s, vocab, in[0], in[1], out[0]);
            }};
  return {"embedding_bwd",
          cost::embedding_bwd(s, d.t),
          {d.ids(s.rows, vocab), d.array(d.t, n)},
          {{d.t_or_fp32(), vocab * s.cols, 2 * kEps * double(s.rows * s.rows)}},
          [=](const Backend& b, CallCtx& c, In in, Outs out) {
            b.embedding_bwd(c, s, vocab, in[0], in[1], out[0]);
          }};
}

// layernorm's bounds, for rows that are sums of absolute value <= 4, and <= 2 for the addend of dx.
Call add_layernorm(Draw& d) {
  const RowShape s = d.rows();
  const int64_t n = s.rows * s.cols;
  const Array a = d.array(d.t, n), b = d.array(d.t, n), gamma = d.array(d.t, s.cols),
              beta = d.array(d.t, s.cols);
  const Array x =
      computed(d, d.t, n, {}, [&](CallCtx& c, Out out) { cpu_backend().add(c, n, a.in(), b.in(), out); });
  const Array stats = statistics(d, s, x, gamma, beta);
  const double steep = steepness(stats), rows = double(s.rows), xhat = std::sqrt(double(s.cols)) + 1,
               step = 16 * kEps * (double(s.cols) + 8);
  if (d.choices.yes())
    return {"add_layernorm_fwd",
            {},
            {a, b, gamma, beta},
            {{d.t, n, 4 * kEps, true},
             {d.t, n, step * (1 + steep) * xhat},
             {DType::F32, 2 * s.rows, step * (1 + steep) * (1 + steep)}},
            [s](const Backend& k, CallCtx& c, In in, Outs out) {
              k.add_layernorm_fwd(c, s, in[0], in[1], in[2], in[3], out[0], out[1], out[2], 1e-5f);
            }};
  const double sums = 2 * kEps * rows * (rows + 8) * (xhat + 4 * steep);
  return {"add_layernorm_bwd",
          cost::add_layernorm_bwd(s, d.t),
          {x, gamma, stats, d.array(d.t, n), d.array(d.t, n)},
          {{d.t, n, step * steep * (8 + 4 * xhat * xhat) + 4 * kEps},
           {d.t_or_fp32(), s.cols, sums},
           {d.t_or_fp32(), s.cols, sums}},
          [s, alone = d.choices.yes()](const Backend& k, CallCtx& c, In in, Outs out) {
            k.add_layernorm_bwd(c, s, in[0], in[1], in[2], in[3], alone ? CBuf{nullptr, in[4].t} : in[4],
                                out[0], out[1], out[2]);
          }};
}

// gelu's bounds for numbers of absolute value <= 4, and those of a sum over the rows.
Call bias_gelu(Draw& d) {
  const RowShape s = d.rows();
  const int64_t n = s.rows * s.cols;
  const double rows = double(s.rows), error = 64 * 8 * kEps;
  const Array x = d.array(d.t, n), bias = d.array(d.t, s.cols);
  if (d.choices.yes())
    return {
        "bias_gelu_fwd",
        {},
        {x, bias},
        {{d.t, n, error}},
        [s](const Backend& b, CallCtx& c, In in, Outs out) { b.bias_gelu_fwd(c, s, in[0], in[1], out[0]); }};
  return {"bias_gelu_bwd",
          cost::bias_gelu_bwd(s, d.t),
          {x, bias, d.array(d.t, n)},
          {{d.t, n, error}, {d.t_or_fp32(), s.cols, rows * error + 4 * kEps * rows * rows}},
          [s](const Backend& b, CallCtx& c, In in, Outs out) {
            b.bias_gelu_bwd(c, s, in[0], in[1], in[2], out[0], out[1]);
          }};
}

// The kernels of linear_cross_entropy other than products and cross-entropy.
Call counts_and_ratios(Draw& d) {
  const int64_t n = d.size(600);
  if (d.choices.yes()) {
    std::vector<double> targets(size_t(n), -1);
    for (double& t : targets) t += double(d.rng.below(4));
    return {"count_targets",
            {},
            {Array(DType::I32, targets, 0)},
            {{DType::F32, 1, 0}},
            [n](const Backend& b, CallCtx& c, In in, Outs out) { b.count_targets(c, n, in[0], out[0]); }};
  }
  return {"scale_by_ratio_inplace",
          {},
          {d.array(DType::F32, 1), d.array(DType::F32, 1, 0.5, 2)},
          {{d.t, n, 4 * 8 * kEps, true, -4, 4}},
          [n](const Backend& b, CallCtx& c, In in, Outs out) {
            b.scale_by_ratio_inplace(c, n, in[0], in[1], out[0]);
          }};
}

}  // namespace
}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace gradus::fuzz;
  static constexpr Call (*kKinds[])(Draw&) = {
      elementwise, scaled,        bias,           softmax,           layernorm,       cross_entropy,
      embedding,   matmul,        attention,      attention_bwd,     rotary,          update,
      clip_factor, add_layernorm, bias_gelu,      counts_and_ratios, attention_merge, cross_entropy_of_part,
      rmsnorm,     swiglu,        choose_experts, combine_experts,   balance_loss};
  Choices choices(bytes, size);
  Draw draw(choices);
  const auto kind = choices.one_of(kKinds);
  compare(draw, kind(draw));
  return 0;
}
