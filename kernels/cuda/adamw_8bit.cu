#include "kernels/cuda/adamw.h"

namespace gradus::GRADUS_GPU {

static_assert(kStateBlock == kThreads, "the k-th elements of a group's threads share a scale");

// Dequantizes a thread's elements of a group.
static __device__ void dequantize_group(const Codebook& codebook, Out codes, Out scales, int64_t first,
                                        int64_t n, float (&r)[kEach]) {
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int64_t i = first + k * kThreads;
    r[k] = i < n ? scales.as<float>()[i / kStateBlock] * codebook.value[codes.as<uint8_t>()[i]] : 0.0f;
  }
}
// Quantizes these elements. All threads of the block must call it.
static __device__ void quantize_group(const Codebook& codebook, Out codes, Out scales, int64_t first,
                                      int64_t n, const float (&r)[kEach]) {
  for (int k = 0; k < kEach; ++k) {
    const int64_t i = first + k * kThreads;
    const float x = fabsf(r[k]), most = block_max(x < INFINITY ? x : INFINITY);  // infinity for NaN
    if (i >= n) continue;
    const Normalize place = normalize_by(most);
    if (i % kStateBlock == 0) scales.as<float>()[i / kStateBlock] = place.scale;
    codes.as<uint8_t>()[i] = nearest_code(codebook, place(r[k]));
  }
}

static __global__ void adamw_8bit_kernel(ParamChunk params, const UpdateScalars* scalars, AdamWArgs args,
                                         const Codebook* m_codebook, const Codebook* v_codebook) {
  if (scalars->skip) return;
  const int item = item_of_block(params);
  const ParamUpdate u = params.items[item];
  const AdamWStep step(args, *scalars, u);
  update_weights(params, item, u, [&](int64_t first, float(&w)[kEach]) {
    float grad[kEach], m[kEach], v[kEach];
    read(u.grad, first, u.n, grad);
    dequantize_group(*m_codebook, u.m, u.m_scales, first, u.n, m);
    dequantize_group(*v_codebook, u.v, u.v_scales, first, u.n, v);
#pragma unroll
    for (int k = 0; k < kEach; ++k) step.update(grad[k], w[k], m[k], v[k]);
    quantize_group(*m_codebook, u.m, u.m_scales, first, u.n, m);
    quantize_group(*v_codebook, u.v, u.v_scales, first, u.n, v);
  });
}

void adamw_8bit(const Ctx& ctx, CBuf m_codebook, CBuf v_codebook, ParamList list, AdamWArgs args) {
  for (int64_t i = 0; i < list.count; ++i) check_adamw_8bit(m_codebook, v_codebook, list.items[i]);
  launch_list(ctx, "adamw_8bit", list, adamw_8bit_kernel, ctx.update, args, m_codebook.as<Codebook>(),
              v_codebook.as<Codebook>());
}

}  // namespace gradus::GRADUS_GPU
