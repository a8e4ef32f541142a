// The counted costs of kernels outside the ops: those that the tape, optimizers, parameters and caches run.
// (Kernels of ops: tests/ops/contract_test.cpp.)
#include "src/nn/kv_cache.h"
#include "src/optim/optimizer.h"
#include "tests/nn/generate_testing.h"

namespace gradus {
namespace {

using Trace = std::map<Cost, int64_t>;
Trace counted(const std::vector<Cost>& costs) {
  Trace trace;
  for (const Cost& c : costs) ++trace[c];
  return trace;
}

struct L04_Costs : ::testing::Test {
  L04_Costs() { meter.keep_trace(); }
  Trace of(const std::function<void()>& f) {
    meter.reset_totals();
    f();
    return meter.trace();
  }
  Context context{"meta", 3};
  Meter& meter = context.device.meter();
};

Cost elementwise(int64_t flops, int64_t bytes, int64_t scratch = 0) {
  return {OpClass::Elementwise, flops, bytes, scratch};
}

TEST_F(L04_Costs, OfParametersAndOptimizers) {
  Parameters parameters;
  for (const int64_t n : {2, 3, 4}) {  // weights and gradients in bf16, a master copy and states in fp32
    Parameter& p = parameters.add(std::to_string(n), {n}, precision_recipe("mixed"));
    p.leaf.grad = Tensor(context.device, {n}, *p.leaf.dtype, Kind::Gradient, "g");
    p.leaf.written = true;
  }
  const int64_t g = size_of(*parameters.begin()->leaf.dtype);
  EXPECT_EQ(of([&] { parameters.find("4").round_master(); }), counted({elementwise(0, 4 * (4 + 2))}));
  EXPECT_EQ(of([&] { AdamW made(parameters); }),
            counted({elementwise(0, 8), elementwise(0, 8), elementwise(0, 12), elementwise(0, 12),
                     elementwise(0, 16), elementwise(0, 16)}))
      << "two states per parameter are filled with 0";
  AdamW adamw(parameters);
  Sgd plain(parameters), momentum(parameters, {.momentum = 0.5f});
  // Per element: the gradient is read, the master copy and the states are read and written, the value is
  // written.
  const Cost counts = elementwise(0, 0);
  EXPECT_EQ(of([&] { adamw.step(0.1); }), counted({counts, elementwise(14 * 9, 9 * (g + 8 + 2 + 16))}));
  EXPECT_EQ(of([&] { plain.step(0.1); }), counted({counts, elementwise(4 * 9, 9 * (g + 8 + 2))}));
  EXPECT_EQ(of([&] { momentum.step(0.1); }), counted({counts, elementwise(4 * 9, 9 * (g + 8 + 2 + 8))}));
  // squares and their sum, then a factor from one sum of fp64
  EXPECT_EQ(of([&] { adamw.clip_grad_norm(1); }),
            counted({elementwise(2 * 9, 9 * g, 256 * 8), elementwise(1, 8)}));
}

TEST_F(L04_Costs, OfWhatTheTapeDoesItself) {
  Tensor x(context.device, {3, 5}, DType::BF16, Kind::Weight, "x");
  Leaf leaf;
  leaf.dtype = DType::F32;
  attach(x, leaf, "x");
  Tape tape;
  const Tensor y = add(x, x);
  const Tensor dy(context.device, {3, 5}, DType::BF16, Kind::Temporary, "dy");
  EXPECT_EQ(of([&] { tape.backward(y, dy); }), counted({elementwise(0, 15 * 6), elementwise(0, 15 * 6)}))
      << "two sums of bf16 into fp32";
  Tensor one(context.device, {}, DType::BF16, Kind::Weight, "one");
  Leaf of_one;
  attach(one, of_one, "one");
  Tape scalar;
  const Tensor twice = scale(one, 2);
  EXPECT_EQ(of([&] { scalar.backward(twice); }), counted({elementwise(0, 2), elementwise(1, 4)}))
      << "the gradient 1 is written, then scale's backward runs";
  const Tensor shared = dy;
  EXPECT_EQ(of([&] { unshared(dy); }), counted({elementwise(0, 15 * 4)}));
}

TEST_F(L04_Costs, OfAKvCache) {
  constexpr int64_t B = 2, T = 4, C = 21, H = 3, D = 7;
  for (const DType t : {DType::F32, DType::BF16}) {
    const auto filled = [&](const Shape& shape) {
      return Tensor(context.device, shape, t, Kind::Temporary, "x");
    };
    const Tensor rows(context.device, {1, B, 2}, DType::I32, Kind::Data, "rows");
    KvLayer layer{filled({13, B, 2 * C}), T, rows};
    const Tensor qkv = filled({B, 1, 3 * C});
    EXPECT_EQ(of([&] { layer.append(qkv); }), counted({cost::embedding_fwd({B * 2, C}, t)})) << name_of(t);
    const auto product = [](int64_t N, int64_t K) {
      MatmulShape s{.M = 1, .N = N, .K = K, .lda = K, .ldb = N, .ldc = N};
      s.batch[0].count = B, s.batch[1].count = H;
      return s;
    };
    std::vector<Cost> attend{cost::matmul(product(T + 1, D), t),
                             cost::softmax_fwd({B * H, T + 1}, DType::F32),
                             cost::matmul(product(D, T + 1), t)};
    if (t != DType::F32) attend.push_back(cost::cast(B * H * (T + 1), DType::F32, t));
    EXPECT_EQ(of([&] { layer.attend(qkv, H); }), counted(attend)) << name_of(t);
  }
}

}  // namespace
}  // namespace gradus
