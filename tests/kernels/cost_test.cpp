// The cost of each kernel, as numbers computed by hand from the formulas of kernels/entries.inc. An operation
// is a +, -, *, /, exp, log, tanh, erf, square root or comparison; each pass over a row recomputes the values
// that it needs. Bytes: each large input once and each large output once.
#include "tests/kernels/cost_testing.h"

namespace gradus {
namespace {

// 15 elements: 60 bytes in fp32, 30 in 16 bits, 120 in fp64.
TEST(L02_Cost, OfElementwiseKernels) {
  constexpr OpClass E = OpClass::Elementwise;
  expect_cost("fill", cost::fill(15, F32), E, 0, 60);
  expect_cost("fill bf16", cost::fill(15, BF16), E, 0, 30);
  expect_cost("cast", cost::cast(15, F32, BF16), E, 0, 90);
  expect_cost("cast", cost::cast(15, F16, F64), E, 0, 150);
  expect_cost("cast_columns", cost::cast_columns({3, 5}, BF16, F32), E, 0, 90);
  expect_cost("add", cost::add(15, F32), E, 15, 180);
  expect_cost("multiply", cost::multiply(15, F32), E, 15, 180);
  expect_cost("add fp16", cost::add(15, F16), E, 15, 90);
  expect_cost("scale", cost::scale(15, F32), E, 15, 120);
  // u: 5; tanh, 1 +, x/2 times: 4
  expect_cost("gelu_fwd", cost::gelu_fwd(15, F32), E, 135, 120);
  // u and tanh: 6; (1 + t)/2: 2; x/2 (1 - t^2): 4; u': 3; their product, their sum, times dy: 3
  expect_cost("gelu_bwd", cost::gelu_bwd(15, BF16), E, 270, 90);
  // x/sqrt(2), erf, 1 +, x/2 times: 5
  expect_cost("gelu_erf_fwd", cost::gelu_erf_fwd(15, F32), E, 75, 120);
  // Phi: 4; e^(-x^2/2)/sqrt(2 pi): 4; times x, their sum, times dy: 3
  expect_cost("gelu_erf_bwd", cost::gelu_erf_bwd(15, F32), E, 165, 180);
  expect_cost("tanh_fwd", cost::tanh_fwd(15, F64), E, 15, 240);
  expect_cost("tanh_bwd", cost::tanh_bwd(15, F32), E, 45, 180);
  // compare, multiply; the random bits are not counted
  expect_cost("dropout", cost::dropout({3, 5}, F32), E, 30, 120);
  expect_cost("bias_fwd", cost::bias_fwd({3, 5}, BF16), E, 15, 60);
  // 24 heads: in q and k of each, 4 elements are rotated by two products and a sum, 24 * 2 * 4 * 3. All
  // 24 * 3 * 6 elements are read and written. Scratch: 4 positions, cosine and sine of 2 angles.
  const RotaryShape s{.B = 2, .T = 4, .H = 3, .KV = 3, .D = 6, .dims = 4};
  expect_cost("rotary", cost::rotary(s, F32), E, 576, 3456, 64);
  expect_cost("rotary bf16", cost::rotary(s, BF16), E, 576, 1728, 64);
  expect_cost("rotary fp64", cost::rotary(s, F64), E, 576, 6912, 128);
}

TEST(L02_Cost, OfKernelsOverRows) {
  constexpr OpClass N = OpClass::Normalization;
  // Scratch: 5 columns of sums in fp32 for each of the partitions (as many as rows, 32 at most), and the
  // total.
  expect_cost("bias_bwd", cost::bias_bwd({3, 5}, F32), N, 15, 60, 80);
  expect_cost("bias_bwd bf16", cost::bias_bwd({40, 5}, BF16), N, 200, 400, 660);
  expect_cost("bias_bwd fp64", cost::bias_bwd({33, 5}, F64), N, 165, 1320, 1320);
  expect_cost("bias_bwd of no rows", cost::bias_bwd({0, 5}, F32), N, 0, 0, 40);
  // mean: 1; variance: 3; x - mean, rstd, gamma, beta: 4
  expect_cost("layernorm_fwd", cost::layernorm_fwd({3, 5}, F32), N, 120, 120);
  // sums of g and g xhat: 6; dx: 7; dgamma: 4; dbeta: 1. Two sums per partition.
  expect_cost("layernorm_bwd", cost::layernorm_bwd({3, 5}, F32), N, 270, 180, 140);
  expect_cost("layernorm_bwd bf16", cost::layernorm_bwd({40, 5}, BF16), N, 3600, 1200, 1300);
  expect_cost("layernorm_bwd fp64", cost::layernorm_bwd({3, 5}, F64), N, 270, 360, 280);
  // maximum, minus, exp, sum, divide
  expect_cost("softmax_fwd", cost::softmax_fwd({3, 5}, F32), N, 75, 120);
  expect_cost("softmax_bwd", cost::softmax_bwd({3, 5}, F16), N, 60, 90);
  expect_cost("cross_entropy_fwd", cost::cross_entropy_fwd({3, 5}, F32), N, 60, 60, 12);
  expect_cost("cross_entropy_fwd bf16", cost::cross_entropy_fwd({3, 5}, BF16), N, 60, 30, 12);
  expect_cost("cross_entropy_fwd fp64", cost::cross_entropy_fwd({3, 5}, F64), N, 60, 120, 24);
  expect_cost("cross_entropy_bwd", cost::cross_entropy_bwd_inplace({3, 5}, F32), N, 45, 120);
  expect_cost("embedding_fwd", cost::embedding_fwd({3, 5}, F32), OpClass::Other, 0, 120);
  // an addition for each element of dy; scratch: 3 rows, sorted, in int64
  expect_cost("embedding_bwd", cost::embedding_bwd({3, 5}, BF16), OpClass::Other, 15, 60, 24);
}

// The same 3 rows of 5; the operations are those of the two kernels that the fused kernel replaces.
TEST(L16_Cost, OfFusedKernels) {
  constexpr OpClass E = OpClass::Elementwise, N = OpClass::Normalization;
  // multiply; the ratio is one division for all elements, and its two numbers are not counted
  expect_cost("scale_by_ratio", cost::scale_by_ratio_inplace(15, F32), E, 15, 120);
  expect_cost("scale_by_ratio fp16", cost::scale_by_ratio_inplace(15, F16), E, 15, 60);
  // compare, add; the targets are int32
  expect_cost("count_targets", cost::count_targets(15), E, 30, 60);
  // x + b: 1; gelu: 9. The bias is small: x and y count.
  expect_cost("bias_gelu_fwd", cost::bias_gelu_fwd({3, 5}, F32), E, 150, 120);
  expect_cost("bias_gelu_fwd bf16", cost::bias_gelu_fwd({3, 5}, BF16), E, 150, 60);
  // x + b: 1; gelu's slope times dy: 18; db: 1. x, dy, dx. Scratch: bias_bwd's, (3 + 1) * 5 sums; (32 + 1)
  // * 5.
  expect_cost("bias_gelu_bwd", cost::bias_gelu_bwd({3, 5}, F32), E, 300, 180, 80);
  expect_cost("bias_gelu_bwd bf16", cost::bias_gelu_bwd({40, 5}, BF16), E, 4000, 1200, 660);
  expect_cost("bias_gelu_bwd fp64", cost::bias_gelu_bwd({33, 5}, F64), E, 3300, 3960, 1320);
  // a + b: 1; layernorm: 8. a, b, their sum, y.
  expect_cost("add_layernorm_fwd", cost::add_layernorm_fwd({3, 5}, F32), N, 135, 240);
  expect_cost("add_layernorm_fwd fp64", cost::add_layernorm_fwd({3, 5}, F64), N, 135, 480);
  // layernorm's 18; + dsum: 1. x, dy, dsum, dx. Scratch: layernorm_bwd's, (2 * 3 + 1) * 5 sums; (2 * 32 + 1)
  // * 5.
  expect_cost("add_layernorm_bwd", cost::add_layernorm_bwd({3, 5}, F32), N, 285, 240, 140);
  expect_cost("add_layernorm_bwd bf16", cost::add_layernorm_bwd({40, 5}, BF16), N, 3800, 1600, 1300);
  expect_cost("add_layernorm_bwd fp64", cost::add_layernorm_bwd({3, 5}, F64), N, 285, 480, 280);
}

// 3 rows of 5 logits; one logit of each row is read.
TEST(L19_Cost, OfAVocabularyInParts) {
  // minus, exp. Per row: a logit, a target, two log-sum-exps, and two sums.
  expect_cost("sums", cost::cross_entropy_sums({3, 5}, F32), OpClass::Other, 6, 3 * (4 + 4 + 16));
  expect_cost("sums bf16", cost::cross_entropy_sums({3, 5}, BF16), OpClass::Other, 6, 3 * (2 + 4 + 16));
  expect_cost("sums fp64", cost::cross_entropy_sums({3, 5}, F64), OpClass::Other, 6, 3 * (8 + 4 + 32));
  // log, plus; minus, plus. Per row: a target, the maximum, two sums, and lse. Scratch: one loss per row.
  expect_cost("of_sums", cost::cross_entropy_of_sums(3, F32), OpClass::Other, 12, 3 * (4 + 16), 12);
  expect_cost("of_sums fp64", cost::cross_entropy_of_sums(3, F64), OpClass::Other, 12, 3 * (4 + 32), 24);
  // compare, minus; ids in and out are int32
  expect_cost("local_ids", cost::local_ids(15), OpClass::Elementwise, 30, 15 * (4 + 4));
}

// 120 elements of 24 queries: two products and a sum each. y is read, the sum is read and written; per query,
// lse is read, and the total is read and written.
TEST(L19_Cost, OfMergedAttention) {
  constexpr OpClass N = OpClass::Normalization;
  const AttentionShape s{2, 3, 1, 4, 5, {}, {}, 1};
  expect_cost("merge", cost::attention_merge_inplace(s, F32), N, 360, 120 * (4 + 8) + 24 * 12);
  expect_cost("merge bf16", cost::attention_merge_inplace(s, BF16), N, 360, 120 * (2 + 8) + 24 * 12);
  expect_cost("merge fp64", cost::attention_merge_inplace(s, F64), N, 360, 120 * (8 + 16) + 24 * 24);
}

TEST(L02_Cost, OfMatrixProducts) {
  const MatmulShape s{.M = 2, .N = 3, .K = 5, .lda = 5, .ldb = 3, .ldc = 3};
  expect_cost("matmul", cost::matmul(s, F32), OpClass::Contraction, 60, 4 * (10 + 15 + 6));
  MatmulShape six = s;
  six.batch[0].count = 2, six.batch[1].count = 3;
  expect_cost("six products", cost::matmul(six, BF16), OpClass::Contraction, 360, 372);
  EXPECT_EQ(cost::matmul(s, BF16).dtype, BF16);
  EXPECT_EQ(cost::matmul(s, F32).dtype, F32);
}

// 6 heads of 4 queries, D = 5: 96 pairs of query and key, 60 of them not masked by causality. q, k, v, y have
// 120 elements each, the probabilities 96, lse 24.
TEST(L03_Cost, OfAttention) {
  constexpr OpClass C = OpClass::Contraction;
  AttentionShape s{2, 3, 3, 4, 5, {60, 20, 5}, {60, 20, 5}, 1};
  expect_cost("plain_fwd, causal", cost::attention_plain_fwd(s, F32), C, 60 * 20, 4 * (480 + 96));
  expect_cost("plain_bwd, causal", cost::attention_plain_bwd(s, F32), C, 60 * 40, 4 * (840 + 96), 96);
  expect_cost("flash_fwd, causal", cost::attention_flash_fwd(s, F32), C, 60 * 20, 4 * (480 + 24));
  expect_cost("flash_bwd, causal", cost::attention_flash_bwd(s, F32), C, 60 * 40, 4 * (960 + 24), 96);
  EXPECT_EQ(cost::attention_flash_bwd(s, BF16).dtype, BF16);
  s.mask = Mask::None;
  expect_cost("plain_fwd", cost::attention_plain_fwd(s, BF16), C, 96 * 20, 2 * (480 + 96));
  expect_cost("plain_bwd", cost::attention_plain_bwd(s, BF16), C, 96 * 40, 2 * (840 + 96), 96);
  expect_cost("flash_fwd", cost::attention_flash_fwd(s, F16), C, 96 * 20, 2 * 480 + 4 * 24);
  expect_cost("flash_bwd", cost::attention_flash_bwd(s, F16), C, 96 * 40, 2 * 960 + 4 * 24, 96);
  expect_cost("plain_bwd fp64", cost::attention_plain_bwd(s, F64), C, 96 * 40, 8 * (840 + 96), 192);
  expect_cost("flash_fwd fp64", cost::attention_flash_fwd(s, F64), C, 96 * 20, 8 * (480 + 24));
  expect_cost("flash_bwd fp64", cost::attention_flash_bwd(s, F64), C, 96 * 40, 8 * (960 + 24), 192);
}

// The same queries; 3 heads share one head of keys and values, so k and v have 40 elements each.
TEST(L15_Cost, OfGroupedAttention) {
  constexpr OpClass C = OpClass::Contraction;
  const AttentionShape s{2, 3, 1, 4, 5, {}, {}, 1};
  expect_cost("plain_fwd", cost::attention_plain_fwd(s, F32), C, 60 * 20, 4 * (240 + 80 + 96));
  expect_cost("plain_bwd", cost::attention_plain_bwd(s, F32), C, 60 * 40, 4 * (360 + 160 + 96), 96);
  expect_cost("flash_fwd", cost::attention_flash_fwd(s, BF16), C, 60 * 20, 2 * (240 + 80) + 4 * 24);
  expect_cost("flash_bwd", cost::attention_flash_bwd(s, BF16), C, 60 * 40, 2 * (480 + 160) + 4 * 24, 96);
  EXPECT_EQ(cost::attention_q(s), 120);
  EXPECT_EQ(cost::attention_k(s), 40);
}

// The operations are those of the algorithms without clipping and decay. Bytes per element: the gradient
// once, weights and states twice; a weight that has a master copy is only written.
TEST(L02_Cost, OfOptimizers) {
  constexpr OpClass E = OpClass::Elementwise;
  char any = 0;
  const auto out = [&](DType t) { return Out{&any, t, Write::Set}; };
  const ParamUpdate plain{10, out(F32), {&any, F32}, {}, {}, {}, true};
  const ParamUpdate momentum{10, out(F32), {&any, F32}, out(F32), {}, {}, true};
  const ParamUpdate mixed{3, out(BF16), {&any, BF16}, out(F32), out(F32), out(F32), false};
  const ParamUpdate half{3, out(F16), {&any, F32}, out(F16), out(F16), {}, false};
  // m = momentum m + g, w -= lr m: 4
  expect_cost("sgd", cost::sgd({1, &plain}), E, 40, 10 * (4 + 8));
  expect_cost("sgd with momentum", cost::sgd({1, &momentum}), E, 40, 10 * (4 + 8 + 8));
  // m: 3; v: 4; both corrected: 2; root, + eps, divide, lr, minus: 5
  expect_cost("adamw, 16-bit value, master copy", cost::adamw({1, &mixed}), E, 42, 3 * (2 + 8 + 2 + 8 + 8));
  expect_cost("adamw, fp16 with fp32 gradients", cost::adamw({1, &half}), E, 42, 3 * (4 + 4 + 4 + 4));
  const ParamUpdate both[] = {mixed, half};
  expect_cost("adamw of two", cost::adamw({2, both}), E, 84, 84 + 48);
  expect_cost("adamw of none", cost::adamw({0, nullptr}), E, 0, 0);
  // square and add; scratch: 256 partial sums in fp64
  expect_cost("sum_squares", cost::sum_squares(1000, F32), E, 2000, 4000, 2048);
  expect_cost("sum_squares fp16", cost::sum_squares(3, F16), E, 6, 6, 2048);
  // one addition per fp64 sum
  expect_cost("clip_factor", cost::clip_factor(7), E, 7, 56);
}

// Squares and their sums by row and column 3; the size of u 4; the update 3; the size of the weights 2.
TEST(L06_Cost, OfAdafactor) {
  constexpr OpClass E = OpClass::Elementwise;
  float x[1];
  const auto item = [&](int64_t rows, int64_t cols, DType t, DType grad, bool master) {
    const Out state{x, t == F64 ? F64 : F32, Write::Set};
    return ParamUpdate{.n = rows * cols,
                       .value = {x, t, Write::Set},
                       .grad = {x, grad},
                       .m = state,
                       .v = state,
                       .master = master ? Out{x, F32, Write::Set} : Out{},
                       .decay = true,
                       .rows = rows};
  };
  // the gradient 3 times, weights read and written, two states of 3 + 5 numbers; scratch: 3 partial sums and
  // 2 more numbers per column, 2 per row, and 2
  const ParamUpdate small = item(3, 5, F32, F32, false), tall = item(40, 5, BF16, F32, true),
                    wide = item(2, 7, F64, F64, false);
  expect_cost("given", cost::adafactor({1, &small}, StepSize::Given), E, 150, 15 * 20 + 8 * 8, 4 * (25 + 8));
  expect_cost("relative", cost::adafactor({1, &small}, StepSize::Relative), E, 180, 15 * 24 + 64, 132);
  expect_cost("master", cost::adafactor({1, &tall}, StepSize::Relative), E, 2400,
              200 * (12 + 8 + 2 + 4) + 8 * 45, 4 * (34 * 5 + 82));
  expect_cost("fp64", cost::adafactor({1, &wide}, StepSize::Given), E, 140, 14 * 40 + 16 * 9,
              8 * (4 * 7 + 6));
  // one row: 1 partial sum and 2 more numbers per column, 2 for the row, and 2; no rows: only the last 2
  const ParamUpdate row = item(1, 7, F32, F32, false), none = item(0, 7, F32, F32, false);
  expect_cost("one row", cost::adafactor({1, &row}, StepSize::Given), E, 70, 7 * 20 + 8 * 8, 4 * (3 * 7 + 4));
  expect_cost("no rows", cost::adafactor({1, &none}, StepSize::Relative), E, 0, 0, 4 * 2);
  const ParamUpdate list[] = {small, tall, small};
  expect_cost("a list", cost::adafactor({3, list}, StepSize::Given), E, 2300,
              2 * (15 * 20 + 64) + 200 * 22 + 360, 4 * (34 * 5 + 82));
}

// m 3, d 3 and its square 2; d a second time 3, divided 1. The gradient and m are read twice.
TEST(L06_Cost, OfMuonsDirection) {
  expect_cost("fp32 to bf16", cost::muon_direction(15, F32, F32, BF16), OpClass::Elementwise, 180,
              15 * (8 + 12 + 2), 2048);
  expect_cost("bf16", cost::muon_direction(15, BF16, F32, F32), OpClass::Elementwise, 180, 15 * (4 + 12 + 4),
              2048);
}

// AdamW's 14; two states are dequantized (2) and quantized (4). 600 elements are 3 blocks: two states of a
// byte and a scale each, all of them read and written.
TEST(L11_Cost, OfAdamWIn8Bits) {
  char any = 0;
  const auto out = [&](DType t) { return Out{&any, t, Write::Set}; };
  const ParamUpdate plain{600, out(F32), {&any, F32}, out(DType::U8), out(DType::U8), {}, true},
      mixed{256, out(BF16), {&any, BF16}, out(DType::U8), out(DType::U8), out(F32), true},
      small{1, out(F16), {&any, F16}, out(DType::U8), out(DType::U8), {}, false};
  constexpr OpClass E = OpClass::Elementwise;
  expect_cost("fp32", cost::adamw_8bit({1, &plain}), E, 15600, 600 * (4 + 8 + 2 + 2) + 3 * 16);
  expect_cost("a master copy", cost::adamw_8bit({1, &mixed}), E, 6656, 256 * (2 + 8 + 2 + 2 + 2) + 16);
  expect_cost("one element", cost::adamw_8bit({1, &small}), E, 26, 2 + 4 + 2 + 2 + 16);
  const ParamUpdate list[] = {plain, mixed, small};
  expect_cost("a list", cost::adamw_8bit({3, list}), E, 15600 + 6656 + 26, 9648 + 4112 + 26);
  expect_cost("none", cost::adamw_8bit({0, nullptr}), E, 0, 0);
}

// The functions that the formulas share.
TEST(L02_Cost, OfParts) {
  for (const auto& [rows, partitions] :
       {std::pair(-1, 1), {0, 1}, {1, 1}, {31, 31}, {32, 32}, {33, 32}, {1000, 32}})
    EXPECT_EQ(cost::partitions(rows), partitions) << rows;
  EXPECT_EQ(cost::stat_size(F64), 8);
  for (const DType t : {F32, BF16, F16}) EXPECT_EQ(cost::stat_size(t), 4);
  expect_cost("elementwise", cost::elementwise(7, F16, 3, 5), OpClass::Elementwise, 21, 70);
  expect_cost("normalization", cost::normalization({3, 7}, F64, 2, 5, 9), OpClass::Normalization, 42, 840, 9);
  EXPECT_EQ(cost::attention_pairs({2, 3, 3, 5, 7, {}, {}, 1, Mask::Causal}), 6 * 15);
  EXPECT_EQ(cost::attention_pairs({2, 3, 1, 5, 7, {}, {}, 1, Mask::None}), 6 * 25);
  for (const auto& [block, pieces] : {std::pair<int64_t, int64_t>(1, 1),
                                      {(1 << 17) - 1, 1},
                                      {1 << 17, 2},
                                      {(3 << 16) + 5, 3},
                                      {(1 << 24) - 1, 255},
                                      {1 << 24, 256},
                                      {1 << 25, 256}})
    EXPECT_EQ(cost::quant_pieces({1 << 26, block}), pieces) << block;
  EXPECT_EQ(cost::quantized_bytes({9, 4}), 9 + 3 * 4);
  EXPECT_EQ(cost::quantized_bytes({9, 4, 4}), 5 + 3 * 4);
  EXPECT_EQ(cost::quantized_bytes({9, 4, 8, Range::ZeroPoint}), 9 + 3 * 8);
}

// 7 numbers in blocks of 4: two scales; in 8 bits 7 bytes of codes, in 4 bits 4. Limits: three numbers per
// block.
TEST(L10_Cost, OfQuantization) {
  constexpr OpClass E = OpClass::Elementwise;
  expect_cost("quantize", cost::quantize({7, 4}, F32), E, 28, 28 + 7 + 8, 24);
  expect_cost("quantize fp16", cost::quantize({7, 4}, F16), E, 28, 14 + 7 + 8, 24);
  expect_cost("quantize to 4 bits", cost::quantize({7, 4, 4}, F32), E, 28, 28 + 4 + 8, 24);
  expect_cost("quantize, zero point", cost::quantize({7, 4, 8, Range::ZeroPoint}, F32), E, 28, 28 + 7 + 16,
              24);
  expect_cost("dequantize", cost::dequantize({7, 4}, F32), E, 14, 28 + 7 + 8);
  expect_cost("dequantize fp64", cost::dequantize({7, 4, 4}, F64), E, 14, 56 + 4 + 8);
  expect_cost("dequantize, zero point", cost::dequantize({7, 4, 4, Range::ZeroPoint}, BF16), E, 14,
              14 + 4 + 16);
  // A block of 65,536 elements is one piece, one of twice that size is two; from 2^24 on there are 256.
  EXPECT_EQ(cost::quantize({1 << 17, (1 << 17) - 1}, F32).scratch, 2 * 1 * 12);
  EXPECT_EQ(cost::quantize({1 << 17, 1 << 17}, F32).scratch, 2 * 12);
  EXPECT_EQ(cost::quantize({1 << 28, 1 << 28}, F32).scratch, 256 * 12);
}

}  // namespace
}  // namespace gradus
