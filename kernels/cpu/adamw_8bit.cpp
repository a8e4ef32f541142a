#include "kernels/cpu/adamw.h"
#include "kernels/cpu/codes.h"

namespace gradus::cpu {

// m or v of a parameter, stored as codes and scales.
struct CodedState {
  CodedState(const Coder& coder, Out codes, Out scales)
      : coder(coder), codes(codes.as<uint8_t>()), scales(scales.as<float>()) {}
  const Coder& coder;
  uint8_t* codes;
  float* scales;

  // Both functions take the block that begins with element `at`. `most` is magnitude(n, from).
  void dequantize(int64_t at, int64_t n, float* to) const {
    coder.decode(n, codes + at, scales[at / kStateBlock], 0, to);
  }
  void quantize(int64_t at, int64_t n, const float* from, uint32_t most) const {
    // BEGIN SOLUTION 11.3
    const Normalize place = normalize_within({.magnitude = most}, Range::AbsMax, coder.codebook, 0);
    scales[at / kStateBlock] = place.scale;
    coder.encode(n, from, place, codes + at);
    // STUB: todo("11.3", "the block's scale, then its codes", at, n, from, most, coder, codes, scales);
    // END SOLUTION 11.3
  }
};

static void adamw_8bit_one(const AdamWStep<float>& step, const CodedState& m_state, const CodedState& v_state,
                           const ParamUpdate& u) {
  const Out& updated = u.master.wanted() ? u.master : u.value;
  const float decay = u.decay ? step.decay : 1;
  parallel_for(state_shape(u.n).blocks(), kGrain / kStateBlock, [&](int64_t begin, int64_t end) {
    alignas(64) float m[kStateBlock], v[kStateBlock], stage[2][kStateBlock];
    for (int64_t at = begin * kStateBlock; begin < end; ++begin, at += kStateBlock) {
      const int64_t n = std::min(kStateBlock, u.n - at);
      float* const w = read("adamw_8bit", updated, at, n, stage[0]);
      const float* const grad = read("adamw_8bit", u.grad, at, n, stage[1]);
      const int64_t ahead = at + 2 * kStateBlock;
      fetch<true>(n * size_of(updated.t), updated.from(ahead).as<char>());
      fetch(n * size_of(u.grad.t), u.grad.from(ahead).as<char>());
      fetch<true>(n, m_state.codes + ahead);
      fetch<true>(n, v_state.codes + ahead);
      m_state.dequantize(at, n, m);
      v_state.dequantize(at, n, v);
      adamw_chunk(step, decay, n, w, grad, m, v);
      // Both before all codes, so that the processor has both divisions by a scale under way.
      const uint32_t most_m = magnitude(n, m), most_v = magnitude(n, v);
      m_state.quantize(at, n, m, most_m);
      v_state.quantize(at, n, v, most_v);
      write_back("adamw_8bit", n, w, u.value, at);
    }
  });
}

void adamw_8bit(const Ctx& ctx, CBuf m_codebook, CBuf v_codebook, ParamList list, AdamWArgs args) {
  check_updates("adamw_8bit", *ctx.update);
  const AdamWStep<float> step(*ctx.update, args);
  const Coder m_coder(*m_codebook.as<Codebook>()), v_coder(*v_codebook.as<Codebook>());
  for (int64_t i = 0; i < list.count; ++i) {
    const ParamUpdate& u = list.items[i];
    check_adamw_8bit(m_codebook, v_codebook, u);
    if (ctx.update->skip) continue;
    adamw_8bit_one(step, {m_coder, u.m, u.m_scales}, {v_coder, u.v, u.v_scales}, u);
  }
}

}  // namespace gradus::cpu
