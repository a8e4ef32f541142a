// Lesson 15: its programs and its formulas.
#include <algorithm>
#include <cmath>

#include "lessons/15_flash_attention/compare.h"
#include "lessons/15_flash_attention/one_head.h"
#include "lessons/15_flash_attention/traffic.h"
#include "src/core/table.h"
#include "src/nn/transformer.h"
#include "tests/program_testing.h"

namespace gradus {
namespace {

// The softmax of x in two passes: first the maximum, then the sum of e^(x - maximum).
Softmax in_two_passes(const std::vector<float>& x) {
  Softmax s;
  for (const float each : x) s.max = std::max(s.max, each);
  for (const float each : x) s.sum += std::exp(each - s.max);
  return s;
}

TEST(L15_Softmax, AddKeepsTheMaximumAndTheSum) {
  RecordProperty("exercise", "15.1");
  const std::vector<std::vector<float>> sequences{{2},          {5, 3, 1, 0},      {0, 1, 3, 5},
                                                  {1, 1, 1},    {-1000, 0, 1000},  {1000, -1000, 999},
                                                  {-3, -2, -9}, {0.5f, 7, 6.5f, 8}};
  for (const std::vector<float>& x : sequences) {
    Softmax s;
    for (size_t n = 1; n <= x.size(); ++n) {
      s.add(x[n - 1]);
      const Softmax right = in_two_passes({x.begin(), x.begin() + ptrdiff_t(n)});
      const std::string after = " is wrong after " + std::to_string(n) + " of " + ::testing::PrintToString(x);
      ASSERT_EQ(s.max, right.max) << "max" << after;
      ASSERT_NEAR(s.sum, right.sum, 1e-6 * right.sum)
          << "sum" << after
          << ": when the maximum rises, the sum so far must be multiplied by e^(old - new maximum)";
    }
  }
}

// y by the formula of attention, in fp64.
std::vector<double> in_fp64(const Head& h) {
  std::vector<double> y(h.q.size());
  for (int64_t t = 0; t < h.T; ++t) {
    std::vector<double> x(size_t(h.T));
    for (int64_t j = 0; j < h.T; ++j)
      for (int64_t d = 0; d < h.D; ++d)
        x[size_t(j)] += double(h.q[size_t(t * h.D + d)]) * h.k[size_t(j * h.D + d)] / std::sqrt(double(h.D));
    const double max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double each : x) sum += std::exp(each - max);
    for (int64_t j = 0; j < h.T; ++j)
      for (int64_t d = 0; d < h.D; ++d)
        y[size_t(t * h.D + d)] += std::exp(x[size_t(j)] - max) / sum * h.v[size_t(j * h.D + d)];
  }
  return y;
}
double error_of(Program program, const Head& head, int64_t rows, Memory& memory) {
  const std::vector<float> y = attend(program, head, rows, memory);
  return largest_difference(std::vector<double>(y.begin(), y.end()), in_fp64(head));
}

TEST(L15_Programs, TilesAreAttention) {
  RecordProperty("exercise", "15.4");
  Memory memory;
  EXPECT_LE(error_of(Program::Tiles, Head::random(kTileKeys, 4, 1), 8, memory), 1e-6)
      << "y is wrong with one tile of keys: the values must be multiplied by e^(score - maximum)";
  Head rising = Head::random(3 * kTileKeys, 4, 2);  // each tile has larger scores than the one before
  for (size_t i = 0; i < rising.k.size(); ++i)
    rising.q[i] = std::abs(rising.q[i]), rising.k[i] = 0.05f * float(i / 4) + 0.1f * rising.k[i];
  EXPECT_LE(error_of(Program::Tiles, rising, 8, memory), 1e-5)
      << "y is wrong when a later tile has a larger maximum: correct the sum and y, each of them once";
  Head falling = rising;
  for (size_t i = 0; i < falling.q.size(); ++i) falling.q[i] = -falling.q[i];
  EXPECT_LE(error_of(Program::Tiles, falling, 8, memory), 1e-5)
      << "y is wrong when later tiles have smaller scores: the maximum does not change then";
  for (const int64_t T : {1, 31, 33, 70})
    EXPECT_LE(error_of(Program::Tiles, Head::random(T, 5, 3), 16, memory), 1e-6) << "y, T = " << T;
}

TEST(L15_Programs, LoadAndStoreThePredictedNumbers) {
  for (const int64_t T : {1, 16, 33, 70})
    for (const int64_t rows : {1, 16, 64})
      for (const Program program : {Program::TwoPasses, Program::Online, Program::Tiles}) {
        Memory memory;
        EXPECT_LE(error_of(program, Head::random(T, 3, 1), rows, memory), 1e-6);
        EXPECT_EQ(memory.loads, predicted_loads(program, T, 3, rows));
        EXPECT_EQ(memory.stores, predicted_stores(program, T, 3));
      }
  // T = rows = D = 8: k, v and the scores have 64 numbers each; scores are loaded three times or once.
  EXPECT_EQ(predicted_loads(Program::TwoPasses, 8, 8, 8) - 64, (2 + 3) * 64);
  EXPECT_EQ(predicted_loads(Program::Online, 8, 8, 8) - 64, (2 + 1) * 64);
  EXPECT_EQ(predicted_loads(Program::Tiles, 8, 8, 1) - 64, 2 * 8 * 64)
      << "with one query per group, each query loads all of k and v";
  EXPECT_EQ(predicted_stores(Program::Online, 8, 8), 2 * 64);
  EXPECT_EQ(predicted_stores(Program::Tiles, 8, 8), 64);
}

struct L15_Attention : ::testing::Test {
  static Lesson lesson(const char* device) {
    std::string name = "test", flag = std::string("--device=") + device;
    char* argv[] = {name.data(), flag.data()};
    Lesson made(2, argv, "test", "", 1);
    made.done();
    return made;
  }
};

TEST_F(L15_Attention, FlashSavesQkvYAndALogSumExpOfEachQuery) {
  RecordProperty("exercise", "15.2");
  const AttentionSize like{.B = 2, .T = 5, .heads = {4, 2}, .D = 3};
  // q: 2·5·4·3 = 120 numbers, k and v: 60 each, y: 120, log-sum-exps: 2·4·5 = 40
  EXPECT_EQ(saved_by_flash(like), 4 * (120 + 2 * 60 + 120 + 40))
      << "q, k, v, y, and one log-sum-exp per query and head";
  AttentionSize halves = like;
  halves.dtype = DType::BF16;
  EXPECT_EQ(saved_by_flash(halves), 2 * (120 + 2 * 60 + 120) + 4 * 40)
      << "log-sum-exps are fp32, whatever the dtype of y is";
  AttentionSize longer = like;
  longer.T = 5000;
  EXPECT_EQ(saved_by_flash(longer), 1000 * saved_by_flash(like)) << "not proportional to T";
  EXPECT_EQ(saved_by_plain(like), 4 * (120 + 2 * 60 + 2 * 4 * 5 * 5));
  const auto saved = [](const char* device, AttentionOp op, const AttentionSize& size) {
    const Context context(device);
    const AttentionInput input(size, 1);
    const Tape tape;
    op(input.qkv, size.heads, Mask::Causal, 0, 0);
    return tape.saved_bytes();
  };
  for (const char* device : {"cpu", "meta", "emu"})
    for (const AttentionSize& size : {like, halves}) {
      EXPECT_EQ(saved(device, attention_flash, size), saved_by_flash(size)) << device;
      EXPECT_EQ(saved(device, attention_plain, size), saved_by_plain(size)) << device;
    }
}

// Compares both attentions on the cpu in fp64, where rounding errors are far below the tolerance.
void expect_equal(const AttentionSize& like, const char* hint) {
  AttentionSize size = like;
  size.dtype = DType::F64;
  const Lesson on = L15_Attention::lesson("cpu");
  const AttentionRun plain = run_attention(on, "cpu", attention_plain, size, 1),
                     flash = run_attention(on, "cpu", attention_flash, size, 1);
  EXPECT_LE(largest_difference(flash.y, plain.y), 1e-12) << "y, T = " << size.T << ", D = " << size.D << hint;
  EXPECT_LE(largest_difference(flash.dqkv, plain.dqkv), 1e-11)
      << "gradients of q, k and v, T = " << size.T << ", D = " << size.D << hint;
}

TEST_F(L15_Attention, FlashEqualsPlainForLongSequencesToo) {
  RecordProperty("exercise", "15.5");
  // The largest difference between y of flash and y of plain.
  const auto outputs_differ_by = [](const AttentionSize& size) {
    const Context cpu;
    const AttentionInput input(size, 1);
    const NoTape forward_only;
    return largest_difference(to_host<double>(attention_flash(input.qkv, size.heads, Mask::Causal, 0)),
                              to_host<double>(attention_plain(input.qkv, size.heads, Mask::Causal, 0)));
  };
  AttentionSize size{.B = 1, .T = 300, .heads = 2, .D = 40, .dtype = DType::F64};
  EXPECT_LE(outputs_differ_by(size), 1e-12) << "one tile of keys";
  size.T = 800, size.D = 3;
  EXPECT_LE(outputs_differ_by(size), 1e-12) << "three tiles of keys, one tile of dimensions";
  size.D = 40;
  EXPECT_LE(outputs_differ_by(size), 1e-12) << "three tiles of keys, several tiles of dimensions";
}

TEST_F(L15_Attention, GradientsOfFlashAreThoseOfPlain) {
  RecordProperty("exercise", "15.6");
  expect_equal({.B = 1, .T = 1, .heads = 1, .D = 2},
               ": one key, so P is 1, dS is 0 and dv = dy. A weight is e^(scale x - lse)");
  expect_equal({.B = 2, .T = 7, .heads = 2, .D = 3},
               ": dS is P (dP - rowsum), with the weight P and not with the score");
  expect_equal({.B = 1, .T = 130, .heads = {4, 2}, .D = 40}, "");
}

TEST_F(L15_Attention, InputsAreTheSameNumbersInEachDtypeAndOnEachDevice) {
  std::vector<double> first;
  for (const char* device : {"cpu", "emu"})
    for (const DType t : {DType::F32, DType::BF16}) {
      const Context context(device);
      const AttentionInput input({.B = 1, .T = 3, .heads = 2, .D = 2, .dtype = t}, 7);
      const std::vector<double> x = to_host<double>(input.qkv);
      if (first.empty()) first = x;
      EXPECT_EQ(x, first);
    }
}

// T is no multiple of a tile, heads share keys, D is below, at and above 64, numbers have 16 or 32 bits.
TEST_F(L15_Attention, FlashMovesOnEmuTheBytesThatItsTilesPredict) {
  const Lesson on = lesson("emu");
  for (const AttentionSize& size :
       {AttentionSize{.B = 2, .T = 0, .heads = {4, 2}, .D = 5},
        AttentionSize{.B = 1, .T = 0, .heads = 1, .D = 65},
        AttentionSize{.B = 1, .T = 0, .heads = {2, 1}, .D = 64, .dtype = DType::BF16}})
    for (const CountedMoves& row : count_moves(on, size, {1, 31, 32, 33, 65, 100}))
      for (const int pass : {0, 1}) {
        EXPECT_EQ(row.flash[pass].loaded, row.predicted[pass].loaded)
            << (pass == 0 ? "forward" : "backward") << ", T = " << row.size.T << ", D = " << row.size.D;
        EXPECT_EQ(row.flash[pass].stored, row.predicted[pass].stored) << "T = " << row.size.T;
      }
}

TEST(L15_Program, TheExampleIsSoftmaxOnline) {
  const Outcome outcome = run("lessons/15_flash_attention", "--print=example");
  if (outcome.output.find(" is open: ") != std::string::npos) return;
  EXPECT_EQ(outcome.code, 0);
  const double weights[] = {std::exp(-3.0), std::exp(-1.0), std::exp(-2.0), 1};
  const double sum = weights[0] + weights[1] + weights[2] + weights[3];
  const double y = (8 * weights[0] + 2 * weights[1] + 4 * weights[2] + 6 * weights[3]) / sum;
  EXPECT_NE(outcome.output.find("y = weighted sum / sum = " + number_text(y)), std::string::npos)
      << outcome.output;
}

}  // namespace
}  // namespace gradus
