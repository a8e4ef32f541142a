// What tests of attention at many lengths share: sizes, numbers that every dtype holds, and one run of an op.
#pragma once
#include <algorithm>
#include <cmath>

#include "src/core/rng.h"
#include "src/ops/ops.h"
#include "tests/tape_testing.h"

namespace gradus {

using AttentionOp = decltype(&attention_plain);

struct AttentionCase {
  int64_t T, D;
  Heads heads = 1;
  Mask mask = Mask::Causal;
  int64_t B = 1;
  Shape qkv() const { return {B, T, (heads.q + 2 * heads.kv) * D}; }
  Shape y() const { return {B, T, heads.q * D}; }
  int64_t group() const { return heads.q / heads.kv; }
  // The first column of q, k or v in qkv, and the number of its columns.
  int64_t first_column(int part) const { return part == 0 ? 0 : (heads.q + (part - 1) * heads.kv) * D; }
  int64_t columns(int part) const { return (part == 0 ? heads.q : heads.kv) * D; }
};
inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << "T " << c.T << ", D " << c.D << ", " << c.heads.q << " heads of queries on " << c.heads.kv
             << (c.mask == Mask::Causal ? ", causal" : "");
}
constexpr const char* kParts[] = {"q", "k", "v"};

// Part 0, 1 or 2 (q, k or v) of values that are packed like qkv.
inline std::vector<double> part_of(const AttentionCase& c, const std::vector<double>& qkv, int part) {
  const int64_t row = c.qkv()[2], begin = c.first_column(part), n = c.columns(part);
  std::vector<double> x;
  for (int64_t i = 0; i < c.B * c.T; ++i)
    x.insert(x.end(), qkv.begin() + i * row + begin, qkv.begin() + i * row + begin + n);
  return x;
}

// Random multiples of 1/32 below 4: seven bits, so fp32, bf16 and fp16 hold them exactly.
inline std::vector<double> exact_numbers(int64_t n, uint64_t stream) {
  Rng rng(15, stream);
  std::vector<double> x(n);
  for (double& each : x) each = std::clamp(std::nearbyint(32 * rng.normal()), -127.0, 127.0) / 32;
  return x;
}

constexpr uint64_t kQkv = 1, kDy = 2;  // streams of the inputs
struct CaseRun {                       // not AttentionRun: lesson 15 has that name, and test-15 links both
  std::vector<double> y, dqkv;
  std::vector<double> lse;  // (B, H, T), only from attention_flash
};
inline CaseRun run_attention(const char* device, DType t, AttentionOp op, const AttentionCase& c) {
  Context context(device, 5);
  const auto tensor = [&](const Shape& shape, uint64_t stream, const char* name) {
    return from_host(context.device, exact_numbers(shape.numel(), stream), shape, t, Kind::Temporary, name);
  };
  Tensor qkv = tensor(c.qkv(), kQkv, "qkv");
  Leaf leaf;
  attach(qkv, leaf, "qkv");
  Tape tape;
  const Tensor y = op(qkv, c.heads, c.mask, 0, 0);
  CaseRun run{to_host<double>(y), {}, {}};
  if (op == attention_flash) run.lse = to_host<double>(tape.nodes()[0].saved[2].tensor);
  tape.backward(y, tensor(c.y(), kDy, "dy"));
  run.dqkv = to_host<double>(leaf.grad);
  return run;
}

// T x D x group, with one and with more heads of keys and values, and with both masks.
inline std::vector<AttentionCase> attention_cases(const std::vector<int64_t>& lengths) {
  std::vector<AttentionCase> cases;
  for (const int64_t T : lengths)
    for (const int64_t D : {32, 64, 80, 128})
      for (const Heads heads : {Heads(2, 2), Heads(4, 2), Heads(8, 1)}) {
        const size_t i = cases.size();
        cases.push_back({T, D, heads, (i + i / 3) % 2 == 0 ? Mask::Causal : Mask::None, T == 1 ? 2 : 1});
      }
  return cases;
}
constexpr int64_t kLong = 8191;

}  // namespace gradus
