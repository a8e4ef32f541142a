// The checks of lesson 07: correct values pass, and each wrong value makes its own check fail.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "lessons/07_accumulation/mistakes.h"
#include "lessons/07_accumulation/ways.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

// B 6, T 4, L 1, C 8, H 2, V 16: 1920 bytes per sequence in the transformer block and 560 outside it.
const TransformerConfig kModel{.vocab = 16, .context = 4, .layers = 1, .heads = 2, .channels = 8};
constexpr int64_t kSaved = 4 * 4 * (16 * 8 + 2 * 4 + 4) + 4 * 4 * (2 * 8 + 16 + 3),
                  kFlops = 6 * 6 * 4 * (12 * 64 + 16 * 8) + 6 * 6 * 8 * 4 * 5;

struct L07_Checks : testing::Test {
  const Context context;
  const Way whole_way{"6", {6}, false, false}, way{"2 + 4", {2, 4}, false, false};
  const gradus::Run whole = run(6);
  static gradus::Run run(int64_t largest) {
    return {{{3, 4}, {1, 2, 2}}, {}, {.loss = 2, .saved_bytes = largest * kSaved}, kFlops};
  }
  Names failed(const Way& w, const gradus::Run& r) const {
    return failed_checks([&](Report& report) { check_way(w, r, kModel, 6, whole, report); });
  }
};

TEST_F(L07_Checks, AWayThatDiffersFromTheWholeBatch) {
  EXPECT_EQ(failed(whole_way, whole), Names{});
  EXPECT_EQ(failed(way, run(4)), Names{});
  EXPECT_EQ(failed(way, run(2)), Names{"2 + 4: bytes saved for backward, largest micro-batch"});
  EXPECT_EQ(failed(way, run(6)), Names{"2 + 4: bytes saved for backward, largest micro-batch"});
  EXPECT_EQ(failed(whole_way, run(4)), Names{"6: bytes saved for backward, largest micro-batch"});
  for (const int64_t off : {-1, 1}) {
    gradus::Run flops = run(4), gradient = run(4), loss = run(4);
    flops.flops += off;
    EXPECT_EQ(failed(way, flops), Names{"2 + 4: FLOPs of the matrix products per step"});
    gradient.first_gradient[1][2] += double(off) * 3.1e-6;  // |g| is 3
    for (const bool ragged : {false, true})
      EXPECT_EQ(failed({way.name, way.split, ragged, false}, gradient),
                Names{"2 + 4: gradient, largest relative difference from the whole batch"});
    loss.last.loss += double(off) * 1.1e-3;
    EXPECT_EQ(failed(way, loss), Names{"2 + 4: last loss, difference from the whole batch"})
        << "too high, and too low";
  }
  gradus::Run wrong = run(4);
  wrong.first_gradient[0][0] = NAN, wrong.last.loss = NAN;
  EXPECT_EQ(failed(way, wrong), (Names{"2 + 4: gradient, largest relative difference from the whole batch",
                                       "2 + 4: last loss, difference from the whole batch"}));
}

TEST_F(L07_Checks, MistakesThatCannotBeSeen) {
  const auto failed = [](double off, bool wrong) {
    return failed_checks([&](Report& r) { check_put_together("x", off, wrong, r); });
  };
  EXPECT_EQ(failed(0.02, true), Names{});
  for (const double off : {0.019, double(NAN)})
    EXPECT_EQ(failed(off, true), Names{"x: relative difference of the gradient"});
  EXPECT_EQ(failed(1e-6, false), Names{});
  for (const double off : {1.1e-6, double(NAN)})
    EXPECT_EQ(failed(off, false), Names{"x: relative difference of the gradient"});
}

TEST_F(L07_Checks, Symptoms) {
  const auto failed = [](double sgd, double adamw, int64_t steps = 20, double divided = 2) {
    return failed_checks([&](Report& r) { check_symptoms({divided, sgd}, {2, adamw}, steps, r); });
  };
  EXPECT_EQ(failed(NAN, 2, 20, NAN), Names{"SGD: last loss, sum of the means / correct gradient"});
  const Names of_sgd{"SGD: last loss, sum of the means / correct gradient"},
      of_adamw{"AdamW: last loss, relative difference of the sum of the means"};
  for (const double sgd : {2.41, double(INFINITY), double(NAN)})
    for (const double adamw : {1.91, 2.0, 2.09}) EXPECT_EQ(failed(sgd, adamw), Names{});
  EXPECT_EQ(failed(2.39, 2), of_sgd);
  for (const double adamw : {1.89, 2.11, double(NAN)}) EXPECT_EQ(failed(9, adamw), of_adamw) << adamw;
  EXPECT_EQ(failed(1, 9, 19), Names{}) << "too few steps";
}

// The table: the sum of the means of 4 equal micro-batches is 4 times the gradient, and the checks hold.
TEST_F(L07_Checks, TheTableMakesTheMistakes) {
  TransformerConfig config = kModel;
  config.dropout = 0.2;
  Transformer model(config);
  model.initialize(1);
  TextBatch even{16, 4, {}, {}}, ragged = even;
  for (int i = 0; i < 64; ++i) {
    for (TextBatch* b : {&even, &ragged}) b->ids.push_back((7 * i + i * i) % 16);
    even.targets.push_back((5 * i + 1) % 16);
    ragged.targets.push_back(i % 4 <= i / 4 % 4 ? (5 * i + 1) % 16 : -1);
  }
  testing::internal::CaptureStdout();
  Report report("test", current().device);
  mistakes_table(model, ragged, even, report);
  EXPECT_EQ(report.finish(""), 0);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(std::regex_search(text, std::regex("sum of the means, even batch in 4 x 4 +4 +3\n"))) << text;
}

}  // namespace
}  // namespace gradus
