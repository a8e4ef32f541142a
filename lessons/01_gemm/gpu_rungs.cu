#include "lessons/01_gemm/gpu_rungs.h"

#include "kernels/cuda/counted.h"
#include "kernels/cuda/gpu.h"

namespace gradus::GRADUS_GPU {

// G1, global memory. One thread per element of C; the 32 threads of a warp compute neighbours in a row of C.
// So they read one element of A (1 sector) and 32 neighbours in a row of B (4 sectors) for 32 FMAs.
__global__ void global_kernel(GemmSize s, Global a, Global b, Global c) {
  const int64_t i = int64_t(blockIdx.y) * blockDim.y + threadIdx.y;
  const int64_t j = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= s.M || j >= s.N) return;
  float sum = 0;
  for (int64_t k = 0; k < s.K; ++k) {
    const float x = a.load(i * s.K + k), y = b.load(k * s.N + j);
    sum += x * y;
  }
  c.store(i * s.N + j, sum);
}

static void global_memory(const Ctx& ctx, const GemmSize& s, const float* a, const float* b, float* c) {
  const dim3 block(kWarp, 8), grid(blocks_for(s.N, block.x), blocks_for(s.M, block.y));
  launch(ctx, "global_memory", grid, block, 0, global_kernel, s, a, b, c);
}

// G2, shared-memory tile. The kTile x kTile threads of a thread block together copy a tile of A and a tile of
// B into shared memory. Then each thread reads a row of A's tile and a column of B's tile there, so each
// number that was loaded from global memory is used kTile times.
constexpr int kTile = 32;

__global__ void __launch_bounds__(kTile* kTile) shared_kernel(GemmSize s, Global a, Global b, Global c) {
  __shared__ float a_tile[kTile][kTile], b_tile[kTile][kTile];
  const int x = int(threadIdx.x), y = int(threadIdx.y);
  const int64_t i = int64_t(blockIdx.y) * kTile + y, j = int64_t(blockIdx.x) * kTile + x;
  float sum = 0;
  for (int64_t k0 = 0; k0 < s.K; k0 += kTile) {
    // BEGIN SOLUTION 01.6
    a_tile[y][x] = a.load(i * s.K + k0 + x, i < s.M && k0 + x < s.K);
    b_tile[y][x] = b.load((k0 + y) * s.N + j, k0 + y < s.K && j < s.N);
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += from_shared(a_tile[y][k]) * from_shared(b_tile[k][x]);
    __syncthreads();
    // STUB: device_todo("01.6", "copy two tiles, wait, add their product to sum, wait", a_tile, b_tile, a, b);
    // END SOLUTION 01.6
  }
  c.store(i * s.N + j, sum, i < s.M && j < s.N);
}

static void shared_tile(const Ctx& ctx, const GemmSize& s, const float* a, const float* b, float* c) {
  const dim3 block(kTile, kTile), grid(blocks_for(s.N, kTile), blocks_for(s.M, kTile));
  launch(ctx, "shared_tile", grid, block, 0, shared_kernel, s, a, b, c);
}

// In G3 and G4 a block of 16 x 16 threads computes kPatch x kPatch elements of C. Each thread keeps 8 x 8 of
// them in registers: 8 numbers of A and 8 of B from shared memory are used for 64 FMAs. A's tile is stored
// transposed, so that the threads of a warp read both tiles along rows. kPad shifts the rows of A's tile, so
// that elements that a warp writes together lie in different banks of shared memory.
constexpr int kPatch = 128, kDepth = 8, kEach = 8, kSide = kPatch / kEach, kPad = 4;

// G3, register tile. A thread computes the rows row, row + 1, ... and the columns col, col + 16, ...
__global__ void __launch_bounds__(kSide* kSide) register_kernel(GemmSize s, Global a, Global b, Global c) {
  __shared__ float a_tile[kDepth][kPatch + kPad], b_tile[kDepth][kPatch];
  const int t = int(threadIdx.x), row = t / kSide * kEach, col = t % kSide;
  const int64_t i0 = int64_t(blockIdx.y) * kPatch, j0 = int64_t(blockIdx.x) * kPatch;
  float sum[kEach][kEach] = {};
  for (int64_t k0 = 0; k0 < s.K; k0 += kDepth) {
    for (int e = t; e < kPatch * kDepth; e += kSide * kSide) {
      const int64_t i = i0 + e / kDepth, k = k0 + e % kDepth;
      a_tile[e % kDepth][e / kDepth] = a.load(i * s.K + k, i < s.M && k < s.K);
    }
    for (int e = t; e < kPatch * kDepth; e += kSide * kSide) {
      const int64_t k = k0 + e / kPatch, j = j0 + e % kPatch;
      b_tile[e / kPatch][e % kPatch] = b.load(k * s.N + j, k < s.K && j < s.N);
    }
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      // BEGIN SOLUTION 01.7
      float x[kEach], y[kEach];
      for (int p = 0; p < kEach; ++p) x[p] = from_shared(a_tile[k][row + p]);
      for (int q = 0; q < kEach; ++q) y[q] = from_shared(b_tile[k][col + kSide * q]);
      for (int p = 0; p < kEach; ++p)
        for (int q = 0; q < kEach; ++q) sum[p][q] += x[p] * y[q];
      // STUB: device_todo("01.7", "add the product of 8 and 8 numbers", a_tile, b_tile, row, col);
      // END SOLUTION 01.7
    }
    __syncthreads();
  }
  for (int p = 0; p < kEach; ++p)
    for (int q = 0; q < kEach; ++q) {
      const int64_t i = i0 + row + p, j = j0 + col + kSide * q;
      c.store(i * s.N + j, sum[p][q], i < s.M && j < s.N);
    }
}

static void register_tile(const Ctx& ctx, const GemmSize& s, const float* a, const float* b, float* c) {
  const dim3 grid(blocks_for(s.N, kPatch), blocks_for(s.M, kPatch));
  launch(ctx, "register_tile", grid, kSide * kSide, 0, register_kernel, s, a, b, c);
}

// G4, as G3 with vectorized loads: each memory instruction moves four neighbours, so a quarter as many
// instructions are needed. K and N are multiples of 4. A thread computes the columns col ... col + 3, and the
// four that lie 64 columns further.
__global__ void __launch_bounds__(kSide* kSide) vector_kernel(GemmSize s, Global a, Global b, Global c) {
  __shared__ __align__(16) float a_tile[kDepth][kPatch + kPad], b_tile[kDepth][kPatch];
  const int t = int(threadIdx.x), row = t / kSide * kEach, col = t % kSide * 4;
  const int64_t i0 = int64_t(blockIdx.y) * kPatch, j0 = int64_t(blockIdx.x) * kPatch;
  const int a_row = t / 2, a_k = t % 2 * 4, b_k = t / 32, b_col = t % 32 * 4;  // elements to copy
  float sum[kEach][kEach] = {};
  for (int64_t k0 = 0; k0 < s.K; k0 += kDepth) {
    const float4 u = a.load4((i0 + a_row) * s.K + k0 + a_k, i0 + a_row < s.M && k0 + a_k < s.K);
    const float4 v = b.load4((k0 + b_k) * s.N + j0 + b_col, k0 + b_k < s.K && j0 + b_col < s.N);
    a_tile[a_k][a_row] = u.x, a_tile[a_k + 1][a_row] = u.y;
    a_tile[a_k + 2][a_row] = u.z, a_tile[a_k + 3][a_row] = u.w;
    *reinterpret_cast<float4*>(&b_tile[b_k][b_col]) = v;
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      const float4 x0 = from_shared4(a_tile[k][row]), x1 = from_shared4(a_tile[k][row + 4]);
      const float4 y0 = from_shared4(b_tile[k][col]), y1 = from_shared4(b_tile[k][col + kPatch / 2]);
      const float x[kEach] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
      const float y[kEach] = {y0.x, y0.y, y0.z, y0.w, y1.x, y1.y, y1.z, y1.w};
      for (int p = 0; p < kEach; ++p)
        for (int q = 0; q < kEach; ++q) sum[p][q] += x[p] * y[q];
    }
    __syncthreads();
  }
  for (int p = 0; p < kEach; ++p)
    for (int q = 0; q < kEach; q += 4) {
      const int64_t i = i0 + row + p, j = j0 + col + q / 4 * (kPatch / 2);
      const float4 v{sum[p][q], sum[p][q + 1], sum[p][q + 2], sum[p][q + 3]};
      c.store4(i * s.N + j, v, i < s.M && j < s.N);
    }
}

static void vectorized(const Ctx& ctx, const GemmSize& s, const float* a, const float* b, float* c) {
  const auto aligned = [](const float* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (s.K % 4 != 0 || s.N % 4 != 0 || !aligned(a) || !aligned(b) || !aligned(c))
    return register_tile(ctx, s, a, b, c);  // rows are not aligned, so G3 copies one number at a time
  const dim3 grid(blocks_for(s.N, kPatch), blocks_for(s.M, kPatch));
  launch(ctx, "vectorized", grid, kSide * kSide, 0, vector_kernel, s, a, b, c);
}

#ifdef __CUDACC__
// G5, cuBLAS: the product that the device cuda itself uses.
static void library(const Ctx& ctx, const GemmSize& s, const float* a, const float* b, float* c) {
  matmul(ctx, {.M = s.M, .N = s.N, .K = s.K, .lda = s.K, .ldb = s.N, .ldc = s.N}, {a, DType::F32},
         {b, DType::F32}, {c, DType::F32, Write::Set});
}
#endif

// With tiles of t x t elements of C, each number of A is read N/t times and each number of B M/t times. These
// are 2 M N K / t numbers. An instruction of a warp reads 32 of them, or 32 * 4 if vectorized. A sector has 8
// numbers, and every instruction reads whole sectors.
static emu::Traffic tiled(const GemmSize& s, int64_t t, int64_t numbers, int64_t shared_loads) {
  const int64_t read = 2 * s.M * s.N * s.K / t, written = s.M * s.N;
  return {{read / (kWarp * numbers), read / 8}, {written / (kWarp * numbers), written / 8}, shared_loads};
}

std::vector<GpuRung> gpu_rungs() {
  // G1: per k a warp issues two loads, of 1 and of 4 sectors.
  std::vector<GpuRung> list = {
      {"G1 global memory", global_memory,
       [](const GemmSize& s) {
         const int64_t warps = s.M * s.N / kWarp;
         return emu::Traffic{{2 * warps * s.K, 5 * warps * s.K}, {warps, 4 * warps}, 0};
       }},
      {"G2 shared-memory tile", shared_tile,
       [](const GemmSize& s) { return tiled(s, kTile, 1, 2 * s.M * s.N * s.K); }},
      {"G3 register tile", register_tile,
       [](const GemmSize& s) { return tiled(s, kPatch, 1, 2 * s.M * s.N * s.K / kEach); }},
      {"G4 vectorized loads", vectorized,
       [](const GemmSize& s) { return tiled(s, kPatch, 4, 2 * s.M * s.N * s.K / kEach / 4); }},
  };
#ifdef __CUDACC__
  list.push_back({"G5 library (cuBLAS)", library, nullptr});
#endif
  return list;
}

}  // namespace gradus::GRADUS_GPU
