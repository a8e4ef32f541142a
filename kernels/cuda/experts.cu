#include "kernels/cuda/experts.h"
#include "kernels/cuda/rows.h"

namespace gradus::GRADUS_GPU {

inline __device__ int64_t slot_at(int64_t choice, const ExpertShape& s, const int32_t* slots) {
  const int32_t slot = slots[choice];
  device_check((slot >= 0 && slot < s.places()) || slot == kElsewhere, "experts: slot", slot,
               "is not a place of an expert; see token", choice / s.chosen);
  return slot;
}

struct Choice {
  float logit;
  int32_t expert;
};
inline __device__ bool larger(float a, float b) { return a > b || (a != a && b == b); }
inline __device__ bool comes_before(Choice a, Choice b) {
  return larger(a.logit, b.logit) || (!larger(b.logit, a.logit) && a.expert < b.expert);
}
inline __device__ Choice first_of_warp(Choice c) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const Choice other{__shfl_xor_sync(kAllLanes, c.logit, lanes),
                       __shfl_xor_sync(kAllLanes, c.expert, lanes)};
    if (comes_before(other, c)) c = other;
  }
  return c;
}

// One warp per token. Each choice is the first of the experts that come after the previous choice.
template <Write W, class T>
__global__ void choose_experts_fwd_kernel(ExpertShape s, const T* logits, int32_t* experts, T* weights) {
  const int64_t t = item_of_warp();
  if (t >= s.tokens()) return;
  const int lane = lane_of_warp();
  const T* const row = logits + t * s.E;
  int32_t* const ids = experts + t * s.chosen;
  Choice before{NAN, -1};  // comes before all
  for (int64_t j = 0; j < s.chosen; ++j) {
    Choice first{-INFINITY, INT32_MAX};  // comes after all
    for (int64_t e = lane; e < s.E; e += kWarp) {
      const Choice c{load(row, e), int32_t(e)};
      if (comes_before(before, c) && comes_before(c, first)) first = c;
    }
    before = first_of_warp(first);
    if (lane == 0) ids[j] = before.expert;
  }
  if (!weights) return;
  __syncwarp();  // all experts are written
  const float largest = load(row, ids[0]);
  float sum = 0;
  for (int64_t j = lane; j < s.chosen; j += kWarp) sum += expf(load(row, ids[j]) - largest);
  sum = warp_sum(sum);
  for (int64_t j = lane; j < s.chosen; j += kWarp)
    store<W>(weights, t * s.chosen + j, expf(load(row, ids[j]) - largest) / sum);
}

void choose_experts_fwd(const Ctx& ctx, const ExpertShape& s, CBuf logits, Out experts, Out weights) {
  check_choose_experts_fwd(s, logits, experts, weights);
  int32_t* const chosen = experts.wanted() ? experts.as<int32_t>() : static_cast<int32_t*>(ctx.scratch);
  visit_gpu("choose_experts_fwd", logits.t, [&]<class T>() {
    visit_write(weights.w, [&]<Write W>() {
      launch_warps(ctx, "choose_experts_fwd", s.tokens(), choose_experts_fwd_kernel<W, T>, s, logits.as<T>(),
                   chosen, weights.as<T>());
    });
  });
}

// One warp per token.
template <Write W, class T>
__global__ void choose_experts_bwd_kernel(ExpertShape s, const int32_t* experts, const T* weights,
                                          const T* dweights, T* dlogits) {
  const int64_t t = item_of_warp(), first = t * s.chosen;
  if (t >= s.tokens()) return;
  const int lane = lane_of_warp();
  float dot = 0;
  for (int64_t j = lane; j < s.chosen; j += kWarp)
    dot += load(weights, first + j) * load(dweights, first + j);
  dot = warp_sum(dot);
  if (W == Write::Set)
    for (int64_t e = lane; e < s.E; e += kWarp) store<W>(dlogits, t * s.E + e, 0.0f);
  __syncwarp();  // the zeros are written
  for (int64_t i = first + lane; i < first + s.chosen; i += kWarp)
    store<W>(dlogits, t * s.E + expert_at(i, s, experts), load(weights, i) * (load(dweights, i) - dot));
}

void choose_experts_bwd(const Ctx& ctx, const ExpertShape& s, CBuf experts, CBuf weights, CBuf dweights,
                        Out dlogits) {
  check_choose_experts_bwd(s, experts, weights, dweights, dlogits);
  visit_out("choose_experts_bwd", dlogits, [&]<class T, Write W>() {
    launch_warps(ctx, "choose_experts_bwd", s.tokens(), choose_experts_bwd_kernel<W, T>, s,
                 experts.as<int32_t>(), weights.as<T>(), dweights.as<T>(), dlogits.as<T>());
  });
}

// One warp per expert and sequence: each of its lanes takes one choice of the sequence at a time.
static __global__ void place_tokens_kernel(ExpertShape s, const int32_t* experts, int32_t* slots,
                                           int32_t* tokens) {
  const int64_t row = item_of_warp(), e = row / s.B, b = row % s.B;
  if (row >= s.E * s.B) return;
  const int lane = lane_of_warp();
  const int64_t end = (b + 1) * s.T * s.chosen, first_place = row * s.capacity;
  int64_t taken = 0;
  for (int64_t begin = b * s.T * s.chosen; begin < end; begin += kWarp) {
    const int64_t i = begin + lane;
    const bool mine = i < end && expert_at(i, s, experts) == e;
    const uint32_t of_warp = __ballot_sync(kAllLanes, mine);
    const int64_t place = taken + __popc(of_warp & ((1u << lane) - 1));
    taken += __popc(of_warp);
    if (!mine) continue;
    if (slots) slots[i] = place < s.capacity ? int32_t(first_place + place) : kElsewhere;
    if (tokens && place < s.capacity) tokens[first_place + place] = int32_t(i / s.chosen);
  }
  if (tokens)
    for (int64_t place = taken + lane; place < s.capacity; place += kWarp)
      tokens[first_place + place] = kElsewhere;
}

void place_tokens(const Ctx& ctx, const ExpertShape& s, CBuf experts, Out slots, Out tokens) {
  check_place_tokens(s, experts, slots, tokens);
  launch_warps(ctx, "place_tokens", s.E * s.B, place_tokens_kernel, s, experts.as<int32_t>(),
               slots.as<int32_t>(), tokens.as<int32_t>());
}

// One block per token.
template <Write W, class T>
__global__ void combine_experts_fwd_kernel(ExpertShape s, int64_t cols, const T* rows, const int32_t* slots,
                                           const T* weights, T* y) {
  const int64_t t = blockIdx.x;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
    float sum = 0;
    for (int64_t i = t * s.chosen; i < (t + 1) * s.chosen; ++i) {
      const int64_t slot = slot_at(i, s, slots);
      if (slot >= 0) sum += (weights ? load(weights, i) : 1.0f) * load(rows, slot * cols + c);
    }
    store<W>(y, t * cols + c, sum);
  }
}

void combine_experts_fwd(const Ctx& ctx, const ExpertShape& s, int64_t cols, CBuf rows, CBuf slots,
                         CBuf weights, Out y) {
  check_combine_experts_fwd(s, rows, slots, weights, y);
  visit_out("combine_experts_fwd", y, [&]<class T, Write W>() {
    launch(ctx, "combine_experts_fwd", unsigned(s.tokens()), row_threads(cols), 0,
           combine_experts_fwd_kernel<W, T>, s, cols, rows.as<T>(), slots.as<int32_t>(), weights.as<T>(),
           y.as<T>());
  });
}

// One block per place.
template <Write W, class T>
__global__ void rows_of_experts_bwd_kernel(ExpertShape s, int64_t cols, const int32_t* slots,
                                           const int32_t* tokens, const T* weights, const T* dy, T* drows) {
  const int64_t place = blockIdx.x, t = tokens[place];
  float weight = 0;
  if (t != kElsewhere) {
    device_check(t >= 0 && t < s.tokens(), "experts: token", t, "does not exist; see place", place);
    int64_t i = t * s.chosen;
    while (i < (t + 1) * s.chosen && slots[i] != place) ++i;
    device_check(i < (t + 1) * s.chosen, "experts: token", t, "has no such slot; see place", place);
    weight = load(weights, i);
  }
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x)
    if (t != kElsewhere)
      store<W>(drows, place * cols + c, weight * load(dy, t * cols + c));
    else if (W == Write::Set)
      store<W>(drows, place * cols + c, 0.0f);
}

// One warp per choice.
template <Write W, class T>
__global__ void weights_of_experts_bwd_kernel(ExpertShape s, int64_t cols, const T* rows,
                                              const int32_t* slots, const T* dy, T* dweights) {
  const int64_t i = item_of_warp();
  if (i >= s.choices()) return;
  const int64_t slot = slot_at(i, s, slots), t = i / s.chosen;
  float sum = 0;
  for (int64_t c = lane_of_warp(); slot >= 0 && c < cols; c += kWarp)
    sum += load(rows, slot * cols + c) * load(dy, t * cols + c);
  sum = warp_sum(sum);
  if (lane_of_warp() == 0) store<W>(dweights, i, sum);
}

void combine_experts_bwd(const Ctx& ctx, const ExpertShape& s, int64_t cols, CBuf rows, CBuf slots,
                         CBuf tokens, CBuf weights, CBuf dy, Out drows, Out dweights) {
  constexpr const char* op = "combine_experts_bwd";
  check_combine_experts_bwd(s, rows, slots, tokens, weights, dy, drows, dweights);
  visit_out(op, drows, [&]<class T, Write W>() {
    launch(ctx, op, unsigned(s.places()), row_threads(cols), 0, rows_of_experts_bwd_kernel<W, T>, s, cols,
           slots.as<int32_t>(), tokens.as<int32_t>(), weights.as<T>(), dy.as<T>(), drows.as<T>());
  });
  visit_out(op, dweights, [&]<class T, Write W>() {
    launch_warps(ctx, op, s.choices(), weights_of_experts_bwd_kernel<W, T>, s, cols, rows.as<T>(),
                 slots.as<int32_t>(), dy.as<T>(), dweights.as<T>());
  });
}

}  // namespace gradus::GRADUS_GPU
