#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

// A thread block works on a piece of a quantization block: piece blockIdx.y of gridDim.y pieces of block
// blockIdx.x. Pieces begin with an even element.
struct Piece {
  int64_t begin, end;
  __device__ explicit Piece(const QuantShape& s) {
    const int64_t first = s.begin(blockIdx.x), n = s.end(blockIdx.x) - first;
    begin = first + n * blockIdx.y / gridDim.y / 2 * 2;
    end = blockIdx.y + 1 == gridDim.y ? first + n : first + n * (blockIdx.y + 1) / gridDim.y / 2 * 2;
  }
};
static unsigned threads_for(const QuantShape& s) {
  return unsigned(std::clamp<int64_t>(s.block / 2 / kWarp * kWarp, kWarp, kThreads));
}
static dim3 pieces_of(const QuantShape& s) { return {unsigned(s.blocks()), unsigned(cost::quant_pieces(s))}; }

static __device__ Limits of_all_threads(const Limits& mine) {
  // The maximum of fp32 numbers, where NaN has no order. Infinity replaces NaN: its scale is infinite, too.
  const bool finite = mine.magnitude < 0x7F800000;
  const float magnitude = block_max(finite ? std::bit_cast<float>(mine.magnitude) : INFINITY);
  Limits all;
  all.magnitude = std::bit_cast<uint32_t>(magnitude);
  all.least = -block_max(-mine.least);
  all.greatest = block_max(mine.greatest);
  return all;
}

template <class T>
__global__ void limits_kernel(QuantShape s, const T* x, Limits* limits) {
  const Piece piece(s);
  Limits mine;
  for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += blockDim.x) mine.include(load(x, i));
  const Limits all = of_all_threads(mine);
  if (threadIdx.x == 0) limits[blockIdx.x * int64_t(gridDim.y) + blockIdx.y] = all;
}

template <class T>
__global__ void codes_kernel(QuantShape s, const Codebook* codebook, const T* x, const Limits* limits,
                             uint8_t* codes, float* scales, float* offsets) {
  const Piece piece(s);
  Limits all;
  for (unsigned p = 0; p < gridDim.y; ++p) all.include(limits[blockIdx.x * int64_t(gridDim.y) + p]);
  const float given = s.range == Range::Given ? scales[blockIdx.x] : 0;
  const Normalize place = normalize_within(all, s.range, *codebook, given);
  if (threadIdx.x == 0 && blockIdx.y == 0) {
    scales[blockIdx.x] = place.scale;
    if (offsets != nullptr) offsets[blockIdx.x] = place.offset;
  }
  if (s.bits == 8) {
    for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += blockDim.x)
      codes[i] = nearest_code(*codebook, place(load(x, i)));
    return;
  }
  for (int64_t i = piece.begin + 2 * threadIdx.x; i < piece.end; i += 2 * blockDim.x) {
    const uint8_t first = nearest_code(*codebook, place(load(x, i))),
                  second = i + 1 < s.n ? nearest_code(*codebook, place(load(x, i + 1))) : uint8_t(0);
    codes[i / 2] = uint8_t(first << 4 | second);
  }
}

void quantize(const Ctx& ctx, const QuantShape& s, CBuf codebook, CBuf x, Out codes, Out scales,
              Out offsets) {
  check_quantize(s, codebook, codes, scales, offsets);
  Limits* const limits = static_cast<Limits*>(ctx.scratch);
  visit_gpu("quantize", x.t, [&]<class T>() {
    launch(ctx, "quantize", pieces_of(s), threads_for(s), 0, limits_kernel<T>, s, x.as<T>(), limits);
    launch(ctx, "quantize", pieces_of(s), threads_for(s), 0, codes_kernel<T>, s, codebook.as<Codebook>(),
           x.as<T>(), limits, codes.as<uint8_t>(), scales.as<float>(), offsets.as<float>());
  });
}

struct Dequantize {
  QuantShape s;
  const Codebook* codebook;
  const uint8_t* codes;
  const float *scales, *offsets;
  __device__ float operator()(int64_t i) const {
    const int64_t b = i / s.block;
    const int code = s.bits == 8 ? codes[i] : i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
    const float r = scales[b] * codebook->value[code];
    return __fadd_rn(offsets == nullptr ? 0 : offsets[b], r);  // a plain + could become part of an fma
  }
};

void dequantize(const Ctx& ctx, const QuantShape& s, CBuf codebook, CBuf codes, CBuf scales, CBuf offsets,
                Out y) {
  check_dequantize(s, codebook, codes, scales, offsets);
  const Dequantize value{s, codebook.as<Codebook>(), codes.as<uint8_t>(), scales.as<float>(),
                         offsets.as<float>()};
  visit_gpu("dequantize", y.t, [&]<class T>() { map_as<T>(ctx, "dequantize", s.n, y, value); });
}

}  // namespace gradus::GRADUS_GPU
