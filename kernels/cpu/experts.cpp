#include "kernels/cpu/experts.h"

namespace gradus::cpu {

static void check_slots(const char* op, const ExpertShape& s, CBuf slots) {
  for (int64_t i = 0; i < s.choices(); ++i) {
    const int32_t slot = slots.as<int32_t>()[i];
    check((slot >= 0 && slot < s.places()) || slot == kElsewhere, op, ": slot ", slot, " of choice ",
          i % s.chosen, " of token ", i / s.chosen, " is not one of the ", s.places(), " places of experts");
  }
}

// Insertion sort of the largest logits so far; most of the other logits are smaller than all of these.
template <class T>
static void choose(const ExpertShape& s, const T* logits, int32_t* experts) {
  const auto larger = [](acc_t<T> a, acc_t<T> b) { return a > b || (a != a && b == b); };
  // BEGIN SOLUTION 21.2
  int64_t count = 0;
  for (int64_t expert = 0; expert < s.E; ++expert) {
    const acc_t<T> logit = load(logits, expert);
    const auto comes_before = [&](int64_t j) { return larger(logit, load(logits, experts[j])); };
    if (count == s.chosen && !comes_before(count - 1)) continue;
    int64_t j = count < s.chosen ? count++ : count - 1;
    for (; j > 0 && comes_before(j - 1); --j) experts[j] = experts[j - 1];
    experts[j] = int32_t(expert);
  }
  // STUB: todo("21.2", "the indices of the s.chosen largest logits in descending order", s, logits, experts, larger);
  // END SOLUTION 21.2
}

void choose_experts_fwd(const Ctx& ctx, const ExpertShape& s, CBuf logits, Out experts, Out weights) {
  check_choose_experts_fwd(s, logits, experts, weights);
  int32_t* const chosen = experts.wanted() ? experts.as<int32_t>() : static_cast<int32_t*>(ctx.scratch);
  visit_float("choose_experts_fwd", logits.t, [&]<class T>() {
    for_rows({s.tokens(), s.E}, [&](int64_t t) {
      const T* const row = logits.as<T>() + t * s.E;
      int32_t* const ids = chosen + t * s.chosen;
      choose(s, row, ids);
      if (!weights.wanted()) return;
      const acc_t<T> largest = load(row, ids[0]);
      acc_t<T> sum = 0;
      for (int64_t j = 0; j < s.chosen; ++j) sum += vexp(load(row, ids[j]) - largest);
      visit_write(weights.w, [&]<Write W>() {
        for (int64_t j = 0; j < s.chosen; ++j)
          store<W>(weights.as<T>(), t * s.chosen + j, vexp(load(row, ids[j]) - largest) / sum);
      });
    });
  });
}

void choose_experts_bwd(const Ctx&, const ExpertShape& s, CBuf experts, CBuf weights, CBuf dweights,
                        Out dlogits) {
  check_choose_experts_bwd(s, experts, weights, dweights, dlogits);
  check_chosen("choose_experts_bwd", s, experts);
  visit_out("choose_experts_bwd", dlogits, [&]<class T, Write W>() {
    for_rows({s.tokens(), s.E}, [&](int64_t t) {
      const T *const w = weights.as<T>() + t * s.chosen, *const dw = dweights.as<T>() + t * s.chosen;
      T* const row = dlogits.as<T>() + t * s.E;
      acc_t<T> dot = 0;
      for (int64_t j = 0; j < s.chosen; ++j) dot += load(w, j) * load(dw, j);
      if (W == Write::Set) std::fill_n(row, s.E, T(acc_t<T>(0)));
      for (int64_t j = 0; j < s.chosen; ++j)
        store<W>(row, experts.as<int32_t>()[t * s.chosen + j], load(w, j) * (load(dw, j) - dot));
    });
  });
}

void place_tokens(const Ctx& ctx, const ExpertShape& s, CBuf experts, Out slots, Out tokens) {
  check_place_tokens(s, experts, slots, tokens);
  check_chosen("place_tokens", s, experts);
  const int64_t choices = s.T * s.chosen;
  for_rows({s.B, choices}, [&](int64_t b) {
    int32_t* const taken = static_cast<int32_t*>(ctx.scratch) + b * s.E;
    std::fill_n(taken, s.E, 0);
    for (int64_t i = b * choices; i < (b + 1) * choices; ++i) {
      const int32_t e = experts.as<int32_t>()[i];
      const bool fits = taken[e] < s.capacity;
      const int64_t slot = (e * s.B + b) * s.capacity + taken[e];
      taken[e] += fits;
      if (slots.wanted()) slots.as<int32_t>()[i] = fits ? int32_t(slot) : kElsewhere;
      if (tokens.wanted() && fits) tokens.as<int32_t>()[slot] = int32_t(i / s.chosen);
    }
    for (int64_t e = 0; tokens.wanted() && e < s.E; ++e)
      std::fill_n(tokens.as<int32_t>() + (e * s.B + b) * s.capacity + taken[e], s.capacity - taken[e],
                  kElsewhere);
  });
}

template <class T>
[[gnu::flatten, gnu::noinline]] static void add_scaled_row(int64_t cols, acc_t<T> by, const T* row,
                                                           acc_t<T>* sum) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) sum[c] += by * load(row, c);
}

void combine_experts_fwd(const Ctx&, const ExpertShape& s, int64_t cols, CBuf rows, CBuf slots, CBuf weights,
                         Out y) {
  check_combine_experts_fwd(s, rows, slots, weights, y);
  check_slots("combine_experts_fwd", s, slots);
  visit_out("combine_experts_fwd", y, [&]<class T, Write W>() {
    for_rows({s.tokens(), s.chosen * cols}, [&](int64_t t) {
      acc_t<T> sum[kChunk];
      for (int64_t at = 0; at < cols; at += kChunk) {
        const int64_t n = std::min(kChunk, cols - at);
        std::fill_n(sum, n, acc_t<T>(0));
        for (int64_t i = t * s.chosen; i < (t + 1) * s.chosen; ++i) {
          const int64_t slot = slots.as<int32_t>()[i];
          const acc_t<T> weight = weights.p ? load(weights.as<T>(), i) : acc_t<T>(1);
          if (slot >= 0) add_scaled_row(n, weight, rows.as<T>() + slot * cols + at, sum);
        }
        copy_row<W>(n, sum, y.as<T>() + t * cols + at);
      }
    });
  });
}

// y = by x
template <Write W, class T>
[[gnu::flatten, gnu::noinline]] static void scale_row(int64_t cols, acc_t<T> by, const T* x, T* y) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) store<W>(y, c, by * load(x, c));
}
template <class T>
[[gnu::flatten, gnu::noinline]] static acc_t<T> dot_of_rows(int64_t cols, const T* a, const T* b) {
  acc_t<T> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < cols; ++c) sum += load(a, c) * load(b, c);
  return sum;
}

// The token's choice that has this place, as an index into slots and weights.
static int64_t choice_at(const ExpertShape& s, CBuf slots, int64_t place, int32_t token) {
  constexpr const char* op = "combine_experts_bwd";
  check(token >= 0 && token < s.tokens(), op, ": place ", place, " has token ", token, " of ", s.tokens());
  const int32_t* const first = slots.as<int32_t>() + token * s.chosen;
  const int64_t j = std::find(first, first + s.chosen, int32_t(place)) - first;
  check(j < s.chosen, op, ": place ", place, " has token ", token, ", which has no such slot");
  return token * s.chosen + j;
}

void combine_experts_bwd(const Ctx&, const ExpertShape& s, int64_t cols, CBuf rows, CBuf slots, CBuf tokens,
                         CBuf weights, CBuf dy, Out drows, Out dweights) {
  constexpr const char* op = "combine_experts_bwd";
  check_combine_experts_bwd(s, rows, slots, tokens, weights, dy, drows, dweights);
  check_slots(op, s, slots);
  visit_out(op, drows, [&]<class T, Write W>() {
    for_rows({s.places(), cols}, [&](int64_t place) {
      const int32_t token = tokens.as<int32_t>()[place];
      T* const row = drows.as<T>() + place * cols;
      if (token != kElsewhere)
        scale_row<W>(cols, load(weights.as<T>(), choice_at(s, slots, place, token)),
                     dy.as<T>() + token * cols, row);
      else if (W == Write::Set)
        std::fill_n(row, cols, T(acc_t<T>(0)));
    });
  });
  visit_out(op, dweights, [&]<class T, Write W>() {
    for_rows({s.choices(), cols}, [&](int64_t i) {
      const int64_t slot = slots.as<int32_t>()[i];
      store<W>(dweights.as<T>(), i,
               slot < 0 ? acc_t<T>(0)
                        : dot_of_rows(cols, rows.as<T>() + slot * cols, dy.as<T>() + i / s.chosen * cols));
    });
  });
}

}  // namespace gradus::cpu
