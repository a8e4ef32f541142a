// The expected value of every byte of the ranks' memory after a random program: computed on the host, with
// sums in rank order in fp32, rounded once.
#pragma once
#include <cstring>

#include "tests/parallel/random_programs.h"

namespace gradus {

using Bytes = std::vector<char>;

struct Place {
  int64_t begin = 0, count = 0;
  bool meets(const Place& o) const { return begin < o.begin + o.count && o.begin < begin + count; }
};

struct Side {  // an op, for one rank
  Place x, y;  // places in the rank's memory of the op's dtype
  bool refills = false;
  Bytes fresh;     // written to x before the op, if it refills x
  Bytes expected;  // in y, or in x if the op has no y, after the wait
  uint64_t style = 0;
};

using Memory = std::map<DType, Bytes>;  // of one rank

inline uint64_t mix(uint64_t x) {  // splitmix64: faster than Rng, for many elements
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

inline Bytes random_bytes(Rng& rng, int64_t n) {
  const uint64_t seed = rng.bits64();
  Bytes out(size_t((n + 7) / 8 * 8));
  for (size_t i = 0; i < out.size(); i += 8) {
    const uint64_t word = mix(seed + i);
    std::memcpy(&out[i], &word, 8);
  }
  out.resize(size_t(n));
  return out;
}

// Numbers for sums, of a class that is drawn for all: ordinary ones; ones of all sizes, so that the order of
// additions matters; ones so large that the sum is infinite; ones so small that they have few bits; zeros of
// both signs.
template <class T>
Bytes numbers(Rng& rng, int64_t n) {
  const uint64_t seed = rng.bits64(), sort = rng.below(5);
  const bool half = std::is_same_v<T, fp16>;
  Bytes out(size_t(n) * sizeof(T));
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t word = mix(seed + uint64_t(i));
    const float unit = float(int32_t(word >> 32)) * 0x1p-31f;  // in [-1, 1)
    float v = unit;
    if (sort == 1) v = std::ldexp(unit, int(word % 13));
    if (sort == 2) v = std::abs(unit) * (half ? 65000.f : 3.3e38f);
    if (sort == 3) v = unit * (half ? 0x1p-20f : 0x1p-140f);
    if (sort == 4) v = word % 3 == 0 ? unit : std::copysign(0.f, unit);
    const T value(v);
    std::memcpy(&out[size_t(i) * sizeof(T)], &value, sizeof(T));
  }
  return out;
}

inline Bytes numbers(Rng& rng, DType t, int64_t n) {
  if (t == DType::F32) return numbers<float>(rng, n);
  return t == DType::BF16 ? numbers<bf16>(rng, n) : numbers<fp16>(rng, n);
}

template <class T>
Bytes sum_in_rank_order(const std::vector<Bytes>& xs) {
  Bytes out(xs[0].size());
  for (size_t at = 0; at < out.size(); at += sizeof(T)) {
    T x;
    std::memcpy(&x, &xs[0][at], sizeof(T));
    float sum = float(x);
    for (size_t r = 1; r < xs.size(); ++r) {
      std::memcpy(&x, &xs[r][at], sizeof(T));
      sum += float(x);
    }
    x = T(sum);
    std::memcpy(&out[at], &x, sizeof(T));
  }
  return out;
}

// The first one of zeros of both signs; NaN if there is one.
template <class T>
Bytes largest(const std::vector<Bytes>& xs) {
  Bytes out = xs[0];
  for (size_t at = 0; at < out.size(); at += sizeof(T)) {
    T most, x;
    std::memcpy(&most, &xs[0][at], sizeof(T));
    for (const Bytes& other : xs) {
      std::memcpy(&x, &other[at], sizeof(T));
      if (std::isnan(float(x)) || float(x) > float(most)) most = std::isnan(float(most)) ? most : x;
    }
    std::memcpy(&out[at], &most, sizeof(T));
  }
  return out;
}

inline Bytes reduced(Op::What what, DType t, const std::vector<Bytes>& xs) {
  const auto as = [&]<class T>(T) {
    return what == Op::What::AllReduceMax ? largest<T>(xs) : sum_in_rank_order<T>(xs);
  };
  return t == DType::F32 ? as(float()) : t == DType::BF16 ? as(bf16()) : as(fp16());
}

struct Case {
  Program program;
  std::vector<std::vector<Side>> sides;  // [op][rank]
  std::vector<Memory> before, after;     // [rank]
};

class CaseMaker {
 public:
  CaseMaker(Rng& rng, Program program) : rng_(rng) {
    made_.program = std::move(program);
    const size_t ranks = size_t(made_.program.ranks);
    made_.sides.assign(made_.program.ops.size(), std::vector<Side>(ranks));
    sent_.resize(made_.program.ops.size());
    for (size_t r = 0; r < ranks; ++r) place(r);
    made_.after = made_.before;
    for (size_t k = 0; k < made_.program.ops.size(); ++k) apply(k);
  }
  Case made_;

 private:
  const Ranks& members_of(const Op& op) const { return made_.program.groups[op.group]; }

  // Where the rank's tensors are: anywhere except in tensors of calls in flight.
  void place(size_t rank) {
    std::map<DType, int64_t> sizes;
    std::map<int64_t, std::vector<Place>> flying;
    const auto find = [&](DType t, int64_t count) {
      int64_t& size = sizes[t];
      Place range{0, count};
      for (int tries = 0; tries < 8 && size > count; ++tries) {
        range.begin = int64_t(rng_.below(uint64_t(size - count)));
        bool free = true;
        for (const auto& [op, ranges] : flying)
          if (made_.program.ops[size_t(op)].dtype == t)
            for (const Place& r : ranges) free = free && !r.meets(range);
        if (free) return range;
      }
      range.begin = size + int64_t(rng_.below(3));  // after all others
      size = range.begin + count + int64_t(rng_.below(3));
      return range;
    };
    for (const Act& act : made_.program.acts[rank]) {
      const Op& op = made_.program.ops[size_t(act.op)];
      if (act.waits) {
        flying.erase(act.op);
        continue;
      }
      if (op.what == Op::What::Barrier) continue;
      Side& side = made_.sides[size_t(act.op)][rank];
      side.style = rng_.below(4);
      const int64_t n = op.n, mine = place_in(members_of(op), int64_t(rank)) * n;
      side.x = find(op.dtype, op.x_numel());
      flying[act.op].push_back(side.x);
      const bool in_place = op.has_y() && rng_.below(2) == 0;
      if (op.what == Op::What::AllGather && in_place) {
        flying.erase(act.op);
        side.y = find(op.dtype, op.y_numel());
        side.x = {side.y.begin + mine, n};
      } else if (op.has_y()) {
        side.y = in_place ? Place{side.x.begin + mine, n} : find(op.dtype, op.y_numel());
      }
      if (op.has_y()) flying[act.op].push_back(side.y);
      side.refills = op.reduces() || (op.what != Op::What::Recv && rng_.below(2) == 0);
      if (op.reduces())
        side.fresh = numbers(rng_, op.dtype, side.x.count);
      else if (side.refills)
        side.fresh = random_bytes(rng_, side.x.count * size_of(op.dtype));
    }
    Memory memory;
    for (const auto& [t, size] : sizes) memory[t] = random_bytes(rng_, size * size_of(t));
    made_.before.push_back(std::move(memory));
  }

  Bytes read(size_t rank, DType t, const Place& r) const {
    const char* from = made_.after[rank].at(t).data() + r.begin * size_of(t);
    return Bytes(from, from + r.count * size_of(t));
  }
  void write(size_t rank, DType t, const Place& r, const char* from) {
    if (r.count > 0)
      std::memcpy(made_.after[rank].at(t).data() + r.begin * size_of(t), from, size_t(r.count * size_of(t)));
  }
  void expect(size_t k, size_t rank, const char* from) {
    const Op& op = made_.program.ops[k];
    Side& side = made_.sides[k][rank];
    const Place& to = op.has_y() ? side.y : side.x;
    write(rank, op.dtype, to, from);
    side.expected = read(rank, op.dtype, to);
  }

  void apply(size_t k) {
    const Op& op = made_.program.ops[k];
    if (op.what == Op::What::Barrier) return;
    const Ranks takes_part = op.is_message() ? Ranks{op.rank} : members_of(op);
    std::vector<Bytes> xs;
    for (const int64_t member : takes_part) {
      const size_t r = size_t(member);
      const Side& side = made_.sides[k][r];
      if (side.refills) write(r, op.dtype, side.x, side.fresh.data());
      xs.push_back(read(r, op.dtype, side.x));
    }
    if (op.is_message()) return apply_message(k, xs[0]);
    Bytes out;
    if (op.reduces()) out = reduced(op.what, op.dtype, xs);
    if (op.what == Op::What::Broadcast) out = xs[size_t(place_in(takes_part, op.other))];
    if (op.what == Op::What::AllGather)
      for (const Bytes& x : xs) out.insert(out.end(), x.begin(), x.end());
    const size_t part = op.what == Op::What::ReduceScatter ? size_t(op.n * size_of(op.dtype)) : 0;
    for (size_t r = 0; r < takes_part.size(); ++r) expect(k, size_t(takes_part[r]), out.data() + r * part);
  }

  void apply_message(size_t k, const Bytes& x) {
    const Op& op = made_.program.ops[k];
    if (op.what == Op::What::Send) {
      sent_[k] = x;
      made_.sides[k][size_t(op.rank)].expected = x;  // it is unchanged
    }
    if (op.pair > int64_t(k)) return;  // the other side comes later
    const size_t send = op.what == Op::What::Send ? k : size_t(op.pair);
    const size_t recv = op.what == Op::What::Send ? size_t(op.pair) : k;
    expect(recv, size_t(made_.program.ops[recv].rank), sent_[send].data());
  }

  Rng& rng_;
  std::vector<Bytes> sent_;
};

}  // namespace gradus
