// States in 8 bits, their updates and codebooks, for tests of adamw_8bit.
#pragma once
#include <memory>

#include "tests/kernels/quantize_testing.h"
#include "tests/kernels/updates_formula.h"

namespace gradus {

constexpr AdamWArgs kArgs{.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-6f, .weight_decay = float(kDecay)};

// m or v as random codes, with a different scale for each block.
struct Coded {
  Coded(const Codebook& codebook, int64_t n, uint64_t stream, double scale)
      : codebook(codebook), n(n), codes(n), scales(Buffer::zeros(DType::F32, state_shape(n).blocks())) {
    Rng rng(12, stream);
    for (int64_t i = 0; i < n; ++i) codes.data()[i] = uint8_t(rng.uniform() * codebook.count);
    std::vector<double> s;
    for (int64_t b = 0; b < state_shape(n).blocks(); ++b) s.push_back(scale * (0.5 + rng.uniform()));
    scales = Buffer(DType::F32, s);
  }
  std::vector<double> values() {  // computed in fp32
    const std::vector<double> s = scales.values();
    std::vector<double> x;
    for (const uint8_t c : codes.values())
      x.push_back(double(float(s[x.size() / kStateBlock]) * codebook.value[c]));
    return x;
  }
  Out codes_out() { return {codes.data(), DType::U8}; }
  const Codebook& codebook;
  int64_t n;
  Bytes codes;
  Buffer scales;
};

struct CodedUpdate {
  CodedUpdate(DType T, DType grad, int64_t n, bool decay, bool has_master, const Codebook& m_codebook,
              const Codebook& v_codebook)
      : n(n),
        decay(decay),
        has_master(has_master),
        value(Buffer::random(T, n, 1)),
        grad(Buffer::random(grad, n, 2)),
        master(Buffer::random(DType::F32, n, 4)),
        m(m_codebook, n, 5, 0.3),
        v(v_codebook, n, 6, 0.1) {}
  ParamUpdate item() {
    return {.n = n,
            .value = value.out(Write::Set),
            .grad = grad.in(),
            .m = m.codes_out(),
            .v = v.codes_out(),
            .master = has_master ? master.out(Write::Set) : Out{},
            .decay = decay,
            .m_scales = m.scales.out(Write::Set),
            .v_scales = v.scales.out(Write::Set)};
  }
  const Buffer& updated() const { return has_master ? master : value; }
  int64_t n;
  bool decay, has_master;
  Buffer value, grad, master;
  Coded m, v;
};

struct Codebooks {
  explicit Codebooks(const Codebook& m, const Codebook& v) : m(m), v(v) {
    std::memcpy(bytes[0].data(), &m, sizeof m), std::memcpy(bytes[1].data(), &v, sizeof v);
  }
  CBuf in(int i) const { return {bytes[i].data(), DType::U8}; }
  const Codebook &m, &v;
  SharedVector<char> bytes[2] = {SharedVector<char>(sizeof(Codebook)), SharedVector<char>(sizeof(Codebook))};
};

// Expects that `state` has the quantized numbers x: each scale is the block's largest magnitude, and the
// value of each code is the nearest one.
inline void expect_quantized(Coded& state, const Expected& e) {
  const std::vector<double>& x = e.value;
  const auto error = [&](int64_t i) { return e.error[i] * epsilon_of(DType::F32); };
  const std::vector<double> scales = state.scales.values();
  const std::vector<uint8_t> codes = state.codes.values();
  for (int64_t b = 0; b < state_shape(state.n).blocks(); ++b) {
    double most = 0, slack = 0;
    for (int64_t i = state_shape(state.n).begin(b); i < state_shape(state.n).end(b); ++i)
      most = std::max(most, std::abs(x[i])), slack = std::max(slack, error(i));
    ASSERT_NEAR(scales[b], most, slack) << e.name << ", scale of block " << b;
    for (int64_t i = state_shape(state.n).begin(b); i < state_shape(state.n).end(b); ++i) {
      double nearest = INFINITY;
      for (int c = 0; c < state.codebook.count; ++c)
        nearest = std::min(nearest, std::abs(x[i] - scales[b] * double(state.codebook.value[c])));
      const double distance = std::abs(x[i] - scales[b] * double(state.codebook.value[codes[i]]));
      ASSERT_LE(distance, nearest + 2 * error(i) + 1e-6 * std::abs(x[i]) + 1e-9 * scales[b])
          << e.name << ", element " << i << " of " << state.n << ", which is " << x[i];
    }
  }
}

}  // namespace gradus
