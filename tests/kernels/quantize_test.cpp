// quantize by its contract: the scale of each block, the nearest value for each element, the packing; and
// dequantize: the dequantized value of each code. On every device, in every dtype, around every block size.
#include "tests/kernels/quantize_testing.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L10_Quantize);
ON_EVERY_DEVICE(L10_Dequantize);

// Expects the scale of the definition, and that no value is nearer to an element than that of its code.
void expect_nearest(const QuantCall& run, const std::vector<double>& x, const Result& r, double given = 1) {
  const Codebook& codebook = run.f.codebook;
  std::vector<double> ascending(codebook.value, codebook.value + codebook.count);
  std::sort(ascending.begin(), ascending.end());
  for (int64_t b = 0; b < run.s.blocks(); ++b) {
    double least = 0, greatest = 0;
    for (int64_t i = run.s.begin(b); i < run.s.end(b); ++i) {
      least = std::min(least, double(float(x[size_t(i)])));
      greatest = std::max(greatest, double(float(x[size_t(i)])));
    }
    const double scale = r.scales[size_t(b)], offset = r.offsets[size_t(b)];
    const double expected = run.f.range == Range::AbsMax      ? std::max(-least, greatest)
                            : run.f.range == Range::ZeroPoint ? double(float(greatest - least))
                                                              : given;
    ASSERT_EQ(scale, expected) << run.f.name << ", the scale of block " << b;
    if (run.f.range == Range::ZeroPoint) {  // one of the codes stands for 0, and the range begins at `least`
      double nearest = INFINITY;
      for (int c = 0; c < codebook.count; ++c) {
        const double zero = -double(float(scale) * codebook.value[c]);
        if (zero == offset) nearest = std::abs(offset - least);
      }
      ASSERT_LE(nearest, scale * (0.5 / (codebook.count - 1) + 1e-6))
          << run.f.name << ", the offset of block " << b;
    }
    for (int64_t i = run.s.begin(b); i < run.s.end(b); ++i) {
      const double t = scale == 0 ? 0 : (double(float(x[size_t(i)])) - offset) / scale;
      const auto above = std::upper_bound(ascending.begin(), ascending.end(), t);
      const double best = std::min(above == ascending.end() ? INFINITY : *above - t,
                                   above == ascending.begin() ? INFINITY : t - above[-1]);
      const int code = r.codes[size_t(i)];
      ASSERT_LT(code, codebook.count) << run.f.name;
      ASSERT_LE(std::abs(t - double(codebook.value[code])), best + 3e-7 * (1 + std::abs(t)))
          << run.f.name << ", " << run.s.n << " in blocks of " << run.s.block << ", element " << i << ": "
          << x[size_t(i)] << " of a block with scale " << scale << " became code " << code << ", "
          << codebook.value[code] << formula_of("quantize");
    }
  }
  if (run.s.bits == 4 && run.s.n % 2) {
    EXPECT_EQ(r.bytes.back() & 15, 0) << "the unused half of the last byte";
  }
}

TEST_P(L10_Quantize, TheNearestValueInEveryLayout) {
  for (const Format& f : formats())
    for (const auto& [n, block] : layouts(f.bits)) {
      const QuantCall run(f, n, block);
      const Buffer x = Buffer::random(DType::F32, n, uint64_t(n + block), 0.3);
      ASSERT_NO_FATAL_FAILURE(expect_nearest(run, x.values(), run.quantize(x)));
    }
}

TEST_P(L10_Quantize, EveryDtype) {
  for (const DType T : float_types())
    for (const Format& f : formats()) {
      const QuantCall run(f, 5001, 100);
      const Buffer x = Buffer::random(T, 5001, 5);
      ASSERT_NO_FATAL_FAILURE(expect_nearest(run, x.values(), run.quantize(x, 2.5), 2.5)) << name_of(T);
    }
}

TEST_P(L10_Quantize, BlocksInPieces) {  // 2 and 3 pieces of 65,536 on a GPU, with an element more or less
  for (const Format& f : formats())
    for (const int64_t n : {131071, 131072, 196611}) {
      if (n != 131071 && f.range == Range::Given) continue;
      const QuantCall run(f, n, n);
      std::vector<double> values = Buffer::random(DType::F32, n, 9, 0.2).values();
      values[size_t(n - 1)] = 2;  // the last one is the largest
      values[0] = -1.5;
      const Buffer x(DType::F32, values);
      ASSERT_NO_FATAL_FAILURE(expect_nearest(run, x.values(), run.quantize(x)));
    }
}

TEST_P(L10_Quantize, SpecialNumbers) {
  const std::vector<std::vector<double>> blocks{{0, 0, 0, 0},
                                                {-0.0, 0, -0.0, 0},
                                                {3, 3, 3, 3},
                                                {-3, -3, -3, -3},
                                                {0x1p-149, 0, 0, -0x1p-149},
                                                {0x1p-130, 0x1p-131, -0x1p-132, 0},
                                                {1e-38, -3e-39, 2e-38, 0},
                                                {3e38, -3e38, 1e38, 0},
                                                {1e-30, 1, 1e30, -1e30},
                                                {5, -1, 2, 1},
                                                {-5, 1, -2, -1},
                                                {1e-20, 2e-20, 3e-20, 4e-20},
                                                {0.5, 0.25, 0.125, 1},
                                                {double(0x1.fffffep127f), 0, -1, 1e38}};
  for (const Format& f : formats())
    for (const auto& values : blocks) {
      if (f.range == Range::ZeroPoint && values[0] > 1e38) continue;  // their distance overflows fp32
      const QuantCall run(f, 4, 4);
      const Buffer x(DType::F32, values);
      const Result r = run.quantize(x, 3e38);
      ASSERT_NO_FATAL_FAILURE(expect_nearest(run, x.values(), r, double(3e38f)));
    }
}

TEST_P(L10_Quantize, EachBlockHasItsOwnGivenScale) {
  const Format& given = formats()[4];
  const QuantCall run(given, 5, 2);
  Bytes codes(5);
  Buffer scales(DType::F32, {1, 2, 4});
  TestCtx ctx(cost::quantize(run.s, DType::F32));
  table().quantize(ctx, run.s, run.codebook_in(), Buffer(DType::F32, {1, -0.5, 1, -2, 1}).in(),
                   {codes.data(), DType::U8}, scales.out(Write::Set), {});
  EXPECT_EQ(codes.values(), (std::vector<uint8_t>{254, 63, 191, 0, 159}));
  EXPECT_EQ(scales.values(), (std::vector<double>{1, 2, 4}));
}

// Elements beyond a given scale get the code of the first or the last value.
TEST_P(L10_Quantize, BeyondAGivenScale) {
  for (const Format& f : formats()) {
    if (f.range != Range::Given) continue;
    const QuantCall run(f, 6, 6);
    const int last = f.codebook.count - 1;
    for (const double scale : {0.01, 1e-20}) {  // with the second, the last two become infinite
      const Buffer x(DType::F32, {1.1 * scale, -1.1 * scale, 5, -5, 1e30, -1e30});
      EXPECT_EQ(run.quantize(x, scale).codes, (std::vector<int>{last, 0, last, 0, last, 0})) << f.name;
    }
  }
}

TEST_P(L10_Quantize, ABlockThatIsNotFiniteSaysSoInItsScale) {
  for (const Format& f : formats()) {
    for (const int64_t block : {64, 131072})
      for (const double bad : {double(INFINITY), -double(INFINITY), double(NAN)}) {
        std::vector<double> values = Buffer::random(DType::F32, 3 * block, 8).values();
        values[size_t(block + block - 1)] = bad;
        const QuantCall run(f, 3 * block, block);
        const Buffer x(DType::F32, values);
        const Result r = run.quantize(x);
        EXPECT_TRUE(std::isfinite(r.scales[0])) << f.name << " " << bad;
        EXPECT_EQ(r.scales[1], INFINITY) << f.name << " " << bad << " in a block of " << block;
        EXPECT_TRUE(std::isfinite(r.scales[2])) << f.name << " " << bad;
        for (const int code : r.codes) ASSERT_LT(code, f.codebook.count);
        if (block > 64) break;  // one bad number suffices for the large block
      }
  }
}

// Two codes per byte, the first in its high half.
TEST_P(L10_Quantize, Packing) {
  RecordProperty("exercise", "10.2");
  Format absmax{"absmax 4", {}, 4};  // built here, so that 10.1 may be open
  absmax.codebook.count = 15, absmax.codebook.step = 1 / 7.0f,
  absmax.codebook.per_step = absmax.codebook.zero = 7;
  std::fill_n(absmax.codebook.boundary, 256, NAN);
  const QuantCall run(absmax, 5, 64);
  const Buffer x(DType::F32, {-7, 7, 0, 3, -5});
  const std::vector<uint8_t> bytes = run.quantize(x).bytes;
  EXPECT_EQ(bytes, (std::vector<uint8_t>{0x0E, 0x7A, 0x20}))
      << usual_mistake({{bytes[0] == 0xE0 && bytes[1] == 0xA7,
                         "the halves of a byte are exchanged: which half has the first code?"},
                        {bytes == std::vector<uint8_t>{0x0E, 0x7A, 0x02},
                         "the last of an odd number of codes is in the low half, which must stay 0"}});
  for (const int64_t n : {4097, 20001, 20003})
    EXPECT_EQ(QuantCall(absmax, n, 64).quantize(Buffer::random(DType::F32, n, 1)).bytes.back() & 15, 0)
        << "the unused half of the last byte, with " << n << " codes";
}

TEST_P(L10_Quantize, TheSameCodesOnEveryDevice) {
  for (const Format& f : formats()) {
    const QuantCall run(f, 20001, 200);
    const Buffer x = Buffer::random(DType::F32, 20001, 4);
    const Result here = run.quantize(x);
    const Turn now = std::exchange(turn, turns().front());
    const Buffer same = Buffer::random(DType::F32, 20001, 4);
    const Result cpu = QuantCall(f, 20001, 200).quantize(same);
    turn = now;
    EXPECT_EQ(here.bytes, cpu.bytes) << f.name;
    EXPECT_EQ(here.scales, cpu.scales) << f.name;
    EXPECT_EQ(here.offsets, cpu.offsets) << f.name;
  }
}

// The arithmetic of dynamic codebooks finds what a search through the boundaries finds. With the second
// scale, numbers are divided in two steps.
TEST_P(L10_Quantize, DynamicCodesOfTellingNumbers) {
  const std::pair<const char*, Codebook> dynamic[] = {{"signed", dynamic_codebook(Sign::Signed)},
                                                      {"unsigned", dynamic_codebook(Sign::Unsigned)},
                                                      {"second moments", second_moment_codebook()}};
  for (const auto& [name, codebook] : dynamic)
    for (const float scale : {1.0f, 0x1p-110f}) {
      std::vector<double> x;
      std::vector<int> want;
      for (const float t : telling_numbers(codebook))
        if (scale == 1 || (std::abs(t) > 0x1p-16f && std::abs(t) < 0x1p100f))
          x.push_back(double(t) * scale), want.push_back(boundaries_below(codebook, t));
      const auto n = int64_t(x.size());
      const Format f{name, codebook, 8, Range::Given};
      EXPECT_EQ(QuantCall(f, n, n).quantize(Buffer(DType::F32, x), scale).codes, want)
          << name << ", with the scale " << scale;
    }
}

// The elements are finite, but their distance is not.
TEST_P(L10_Quantize, AZeroPointOfTooWideARange) {
  const Format& zero = formats()[2];
  const Result r = QuantCall(zero, 4, 2).quantize(Buffer(DType::F32, {3e38, -3e38, 1, 2}));
  EXPECT_EQ(r.scales, (std::vector<double>{INFINITY, 2}));
  EXPECT_EQ(r.offsets, (std::vector<double>{0, 0}));
}

TEST_P(L10_Quantize, Nothing) {
  for (const Format& f : formats()) {
    const QuantCall run(f, 0, 64);
    const Buffer none = Buffer::zeros(DType::F32, 0);
    EXPECT_TRUE(run.quantize(none).bytes.empty());
    Buffer y = Buffer::zeros(DType::F32, 0);
    table().dequantize(TestCtx(), run.s, run.codebook_in(), {none.in().p, DType::U8}, none.in(),
                       f.range == Range::ZeroPoint ? none.in() : CBuf{}, y.out(Write::Set));
    y.values();
  }
}

TEST_P(L10_Quantize, Refusals) {
  const Format& f = formats()[0];
  Buffer any = Buffer::zeros(DType::F32, 8);
  const auto text = [&](const QuantShape& s, DType code = DType::U8, DType scale = DType::F32,
                        Out offsets = {}, Write w = Write::Set, DType codebook = DType::U8,
                        DType T = DType::F32) {
    Buffer codes = Buffer::zeros(DType::F32, 8);
    const QuantCall run(f, 8, 8);
    TestCtx ctx(cost::quantize({8, 8}, T));
    return refusal([&] {
      table().quantize(ctx, s, {run.codebook_in().p, codebook}, {any.in().p, T},
                       {codes.in().p == nullptr ? nullptr : codes.out(Write::Set).p, code, w},
                       {any.out(Write::Set).p, scale}, offsets);
    });
  };
  EXPECT_EQ(text({8, 8}), "");
  EXPECT_EQ(text({8, 8, 5}), "quantize: codes of 5 bits; a code has 8 or 4 bits");
  EXPECT_EQ(text({8, 0}),
            "quantize: blocks of 0 for 8 elements; a block has at least one, and with 4 bits an even number, "
            "because two codes share a byte");
  EXPECT_NE(text({8, 3, 4}), "");
  EXPECT_NE(text({-1, 8}), "");
  EXPECT_NE(text({8, 8}, DType::F32), "");
  EXPECT_NE(text({8, 8}, DType::U8, DType::F16), "");
  EXPECT_NE(text({8, 8}, DType::U8, DType::F32, any.out(Write::Set)), "") << "offsets without a zero point";
  EXPECT_NE(text({8, 8, 8, Range::ZeroPoint}), "") << "a zero point without offsets";
  EXPECT_NE(text({8, 8}, DType::U8, DType::F32, {}, Write::Add), "");
  EXPECT_NE(text({8, 8}, DType::U8, DType::F32, {}, Write::Set, DType::F32), "") << "the codebook";
  EXPECT_NE(text({8, 8}, DType::U8, DType::F32, {}, Write::Set, DType::U8, DType::I32), "") << "x";
}

// All codes, two scales and offsets: y = offset + scale value, each step rounded to fp32.
TEST_P(L10_Dequantize, WhatCodesComeBackAs) {
  for (const Format& f : formats())
    for (const auto& [n, block] : layouts(f.bits)) {
      const QuantCall run(f, n, block);
      Bytes codes(run.s.code_bytes());
      for (int64_t i = 0; i < run.s.code_bytes(); ++i) {
        const int a = int((i * 7 + 3) % f.codebook.count), b = int((i * 5 + 1) % f.codebook.count);
        codes.data()[i] = uint8_t(f.bits == 8 ? a : a << 4 | b);
      }
      const std::vector<uint8_t> bytes = codes.values();
      const Buffer scales = Buffer::random(DType::F32, run.s.blocks(), 1),
                   offsets = Buffer::random(DType::F32, run.s.blocks(), 2);
      std::vector<double> expected;
      for (int64_t i = 0; i < n; ++i) {
        const size_t b = size_t(i / block);
        const int code = f.bits == 8 ? bytes[size_t(i)]
                         : i % 2     ? bytes[size_t(i / 2)] & 15
                                     : bytes[size_t(i / 2)] >> 4;
        const float r = float(scales.values()[b]) * f.codebook.value[code];
        expected.push_back(f.range == Range::ZeroPoint ? float(offsets.values()[b]) + r : r);
      }
      const CBuf moved = f.range == Range::ZeroPoint ? offsets.in() : CBuf{};
      for (const DType T : float_types()) {
        if (T == DType::F64) continue;
        const TestedCall call{"dequantize " + std::string(f.name),
                              {{"y", {T}, expected}},
                              [&](const Ctx& c, const std::vector<Out>& out) {
                                table().dequantize(c, run.s, run.codebook_in(), {codes.data(), DType::U8},
                                                   scales.in(), moved, out[0]);
                              }};
        ASSERT_NO_FATAL_FAILURE(expect_contract(call, all_ways(call.outputs)));
      }
    }
}

}  // namespace
}  // namespace gradus
