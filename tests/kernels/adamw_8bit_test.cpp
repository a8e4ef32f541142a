// adamw_8bit against AdamW's formula in fp64 on the dequantized values; and the calls that it rejects.
#include "tests/kernels/adamw_8bit_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L11_Kernels);

void expect_updates(std::vector<std::unique_ptr<CodedUpdate>>& all, const Codebooks& codebooks) {
  TestCtx ctx;
  const OpenMpThreads three(3);
  ctx.scalars().learning_rate = float(kRate), ctx.scalars().clip_factor = float(kClip);
  std::vector<ParamUpdate> items;
  for (const auto& u : all) items.push_back(u->item());
  for (const int step : {1, 300}) {
    std::vector<AfterUpdate> after;
    for (const auto& u : all) after.push_back(adamw_of(*u, kArgs, step));
    ctx.scalars().updates = step;
    table().adamw_8bit(ctx, codebooks.in(0), codebooks.in(1), {int64_t(items.size()), items.data()}, kArgs);
    for (size_t k = 0; k < all.size(); ++k) {
      CodedUpdate& u = *all[k];
      const std::string op = "adamw_8bit of parameter " + std::to_string(k);
      const auto expect = [&](const Expected& e, const Buffer& b) {
        expect_written(op, e, b.type(), Write::Set, {}, b.values());
      };
      ASSERT_NO_FATAL_FAILURE(expect(after[k].w, u.updated()));
      ASSERT_NO_FATAL_FAILURE(expect({"value of a master copy", {}, u.updated().values()}, u.value));
      ASSERT_NO_FATAL_FAILURE(expect_quantized(u.m, after[k].m)) << op;
      ASSERT_NO_FATAL_FAILURE(expect_quantized(u.v, after[k].v)) << op;
    }
  }
}

// Every mix of dtypes, with and without master copy and decay, at sizes just below and above a quantization
// block (256), the elements of a GPU's block at a time (1,024) and in all (4,096), and a thread's share. More
// parameters than one launch takes.
TEST_P(L11_Kernels, AdamW8BitIsTheAlgorithm) {
  constexpr int64_t kSizes[] = {1, 4097, 0, 255, 1025, 256, 7, 257, 1023, 4095, 513};
  const Codebook m_codebook = dynamic_codebook(Sign::Signed), v_codebook = dynamic_codebook(Sign::Unsigned);
  std::vector<std::unique_ptr<CodedUpdate>> all;
  for (int round = 0; round < 3; ++round)
    for (const DType T : {DType::F32, DType::BF16, DType::F16})
      for (const DType grad : t_or_fp32(T))
        for (const bool decay : {false, true})
          for (const bool master : {false, true})
            all.push_back(std::make_unique<CodedUpdate>(T, grad, kSizes[all.size() % std::size(kSizes)],
                                                        decay, master, m_codebook, v_codebook));
  if (turn.table == &cpu_backend())
    all.push_back(
        std::make_unique<CodedUpdate>(DType::BF16, DType::F32, 40'003, true, true, m_codebook, v_codebook));
  expect_updates(all, Codebooks(m_codebook, v_codebook));
}
TEST_P(L11_Kernels, AdamW8BitTakesAnyBooks) {
  const Codebook linear = absmax_codebook(8), positive = zero_point_codebook(8), few = nf4_codebook(),
                 crowded = crowded_codebook(200);
  for (const auto& [m, v] : {std::pair{&linear, &positive}, {&few, &positive}, {&crowded, &positive}}) {
    std::vector<std::unique_ptr<CodedUpdate>> all;
    all.push_back(std::make_unique<CodedUpdate>(DType::F32, DType::F32, 1300, false, false, *m, *v));
    expect_updates(all, Codebooks(*m, *v));
  }
}

// On the CPU, adamw_8bit is bitwise equal to its three steps as separate kernels.
TEST(L11_Kernels, AdamW8BitIsDequantizeAdamWQuantize) {
  const Codebook m_codebook = dynamic_codebook(Sign::Signed), v_codebook = dynamic_codebook(Sign::Unsigned);
  const Codebooks codebooks(m_codebook, v_codebook);
  const int64_t n = 70'001;
  CodedUpdate one(DType::F32, DType::F32, n, true, false, m_codebook, v_codebook),
      three(DType::F32, DType::F32, n, true, false, m_codebook, v_codebook);
  Buffer m = Buffer::zeros(DType::F32, n), v = Buffer::zeros(DType::F32, n);
  const QuantShape s = state_shape(n);
  TestCtx ctx(cost::quantize(s, DType::F32));
  ctx.scalars().learning_rate = 0.01f;
  for (int step = 1; step <= 3; ++step) {
    ctx.scalars().updates = step;
    const ParamUpdate item = one.item();
    table().adamw_8bit(ctx, codebooks.in(0), codebooks.in(1), {1, &item}, kArgs);
    ParamUpdate plain = three.item();
    Coded* const states[2] = {&three.m, &three.v};
    Buffer* const numbers[2] = {&m, &v};
    for (int i = 0; i < 2; ++i)
      table().dequantize(ctx, s, codebooks.in(i), {states[i]->codes.data(), DType::U8},
                         states[i]->scales.in(), {}, numbers[i]->out(Write::Set));
    plain.m = m.out(Write::Set), plain.v = v.out(Write::Set);
    table().adamw(ctx, {1, &plain}, kArgs);
    for (int i = 0; i < 2; ++i)
      table().quantize(ctx, s, codebooks.in(i), numbers[i]->in(), states[i]->codes_out(),
                       states[i]->scales.out(Write::Set), {});
    ASSERT_EQ(one.value.values(), three.value.values()) << "step " << step;
    ASSERT_EQ(one.m.codes.values(), three.m.codes.values()) << "step " << step;
    ASSERT_EQ(one.v.codes.values(), three.v.codes.values()) << "step " << step;
    ASSERT_EQ(one.m.scales.values(), three.m.scales.values()) << "step " << step;
    ASSERT_EQ(one.v.scales.values(), three.v.scales.values()) << "step " << step;
  }
}

// A skipped update changes nothing; a gradient that is not finite affects only its own block; if all numbers
// are 0, they stay 0.
TEST_P(L11_Kernels, AdamW8BitOfSpecialNumbers) {
  const Codebook m_codebook = dynamic_codebook(Sign::Signed), v_codebook = dynamic_codebook(Sign::Unsigned);
  const Codebooks codebooks(m_codebook, v_codebook);
  for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    CodedUpdate u(DType::F32, DType::F32, 1000, true, false, m_codebook, v_codebook);
    std::vector<double> g = u.grad.values();
    g[300] = bad;
    u.grad = Buffer(DType::F32, g);
    TestCtx ctx;
    ctx.scalars().learning_rate = 0.1f, ctx.scalars().updates = 1, ctx.scalars().skip = 1;
    const ParamUpdate item = u.item();
    const auto w = u.value.values(), m = u.m.values(), v = u.v.values();
    table().adamw_8bit(ctx, codebooks.in(0), codebooks.in(1), {1, &item}, kArgs);
    EXPECT_EQ(u.value.values(), w);
    EXPECT_EQ(u.m.values(), m);
    EXPECT_EQ(u.v.values(), v);
    ctx.scalars().skip = 0;
    table().adamw_8bit(ctx, codebooks.in(0), codebooks.in(1), {1, &item}, kArgs);
    for (Coded* state : {&u.m, &u.v}) {
      const std::vector<double> scales = state->scales.values();
      for (size_t b = 0; b < scales.size(); ++b) EXPECT_EQ(std::isinf(scales[b]), b == 1) << bad;
    }
  }
  CodedUpdate u(DType::F32, DType::F32, 600, false, false, m_codebook, v_codebook);
  u.grad = Buffer::zeros(DType::F32, 600);
  u.m.scales = Buffer::zeros(DType::F32, 3), u.v.scales = Buffer::zeros(DType::F32, 3);
  TestCtx ctx;
  ctx.scalars().learning_rate = 0.1f, ctx.scalars().updates = 1;
  const ParamUpdate item = u.item();
  const auto w = u.value.values();
  table().adamw_8bit(ctx, codebooks.in(0), codebooks.in(1), {1, &item}, kArgs);
  EXPECT_EQ(u.value.values(), w);
  EXPECT_EQ(u.m.scales.values(), std::vector<double>(3, 0.0));
  EXPECT_EQ(u.v.values(), std::vector<double>(600, 0.0));
}

// v from the largest of a block down to the smallest float, at every place of a vector: v has the code of 0
// if and only if it is 0. With the scale 1, v / scale never rounds to 0.
TEST_P(L11_Kernels, AdamW8BitKeepsAVAboveZeroAboveZero) {
  const Codebook m_codebook = dynamic_codebook(Sign::Signed), v_codebook = second_moment_codebook();
  const Codebooks codebooks(m_codebook, v_codebook);
  constexpr int64_t n = 1000;
  CodedUpdate u(DType::F32, DType::F32, n, false, false, m_codebook, v_codebook);
  u.m.scales = Buffer::zeros(DType::F32, 4), u.v.scales = Buffer::zeros(DType::F32, 4);
  std::vector<double> g;
  for (int64_t i = 0; i < n; ++i)
    g.push_back(i % 256 == 77 ? 1 : i % 5 == 0 ? 0 : (i % 2 ? 1 : -1) * std::pow(10.0, -double(i % 47) / 2));
  u.grad = Buffer(DType::F32, g);
  TestCtx ctx;
  ctx.scalars().learning_rate = 0.1f;
  AdamWArgs args = kArgs;
  args.beta2 = 0;  // v = g^2
  for (const int step : {1, 2}) {
    ctx.scalars().updates = step;
    const ParamUpdate item = u.item();
    table().adamw_8bit(ctx, codebooks.in(0), codebooks.in(1), {1, &item}, args);
    const std::vector<uint8_t> codes = u.v.codes.values();
    for (int64_t i = 0; i < n; ++i) {
      const float of_square = float(u.grad.values()[i]) * float(u.grad.values()[i]);
      ASSERT_EQ(codes[i] > 0, of_square > 0) << "element " << i << ", v " << of_square;
    }
  }
  int64_t denormal = 0, gone = 0;
  for (const double gi : g) {
    const float v = float(gi) * float(gi);
    denormal += v > 0 && v < 0x1p-126f, gone += gi != 0 && v == 0;
  }
  EXPECT_GT(denormal, 50);
  EXPECT_GT(gone, 5);
}

// Wrong dtypes, and missing states.
TEST_P(L11_Kernels, AdamW8BitRefusesWhatItCannotDo) {
  const Codebook m_codebook = dynamic_codebook(Sign::Signed), v_codebook = dynamic_codebook(Sign::Unsigned);
  const Codebooks codebooks(m_codebook, v_codebook);
  CodedUpdate u(DType::F32, DType::F32, 300, true, false, m_codebook, v_codebook);
  TestCtx ctx;
  ctx.scalars().updates = 1;
  const auto refused = [&](const std::function<void(ParamUpdate&, CBuf & m, CBuf & v)>& change) {
    ParamUpdate item = u.item();
    CBuf m = codebooks.in(0), v = codebooks.in(1);
    change(item, m, v);
    return refusal([&] {
      table().adamw_8bit(ctx, m, v, {1, &item}, kArgs);
      wait_for_kernels();
    });
  };
  EXPECT_EQ(refused([](auto&...) {}), "");
  using Change = void (*)(ParamUpdate&, CBuf&, CBuf&);
  const std::pair<const char*, Change> wrong[] = {
      {"fp64", [](ParamUpdate& u, CBuf&, CBuf&) { u.value.t = DType::F64; }},
      {"m is fp32", [](ParamUpdate& u, CBuf&, CBuf&) { u.m.t = DType::F32; }},
      {"v is", [](ParamUpdate& u, CBuf&, CBuf&) { u.v.t = DType::I8; }},
      {"m's scales", [](ParamUpdate& u, CBuf&, CBuf&) { u.m_scales.t = DType::F16; }},
      {"v's scales", [](ParamUpdate& u, CBuf&, CBuf&) { u.v_scales.t = DType::F64; }},
      {"a gradient", [](ParamUpdate& u, CBuf&, CBuf&) { u.grad.t = DType::BF16; }},
      {"must be given", [](ParamUpdate& u, CBuf&, CBuf&) { u.v_scales.p = nullptr; }},
      {"must be given", [](ParamUpdate& u, CBuf&, CBuf&) { u.m.p = nullptr; }},
      {"the codebook", [](ParamUpdate&, CBuf& m, CBuf&) { m.t = DType::F32; }},
      {"the codebook", [](ParamUpdate&, CBuf&, CBuf& v) { v.t = DType::F32; }}};
  for (const auto& [says, change] : wrong)
    EXPECT_NE(refused(change).find(says), std::string::npos) << says << ": " << refused(change);
}

}  // namespace
}  // namespace gradus
