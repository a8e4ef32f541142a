// Each check of lesson 11 passes with right values and fails with a planted wrong value.
#include <gtest/gtest.h>

#include <cmath>

#include "lessons/11_adam8bit/moves.h"
#include "lessons/11_adam8bit/update_time.h"
#include "tests/lessons/report_testing.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

TEST(L11_Checks, BytesOfStates) {
  Trained right{.row = {}, .losses = {}, .predicted = 4096, .moments = {}};
  right.row.name = "AdamW8bit", right.row.peak.emplace();
  right.row.peak->by_kind[int(Kind::Optimizer)] = 4096;
  const Checked failed(right, check_bytes);
  for (const int64_t off : {-1, 1})
    EXPECT_EQ(failed([=](Trained& t) { t.row.peak->by_kind[int(Kind::Optimizer)] += off; }),
              Names{"AdamW8bit: bytes of the states"});
}

TEST(L11_Checks, HeldOutLosses) {
  const auto failed = [](const char* name, double loss, int64_t seeds) {
    std::map<std::string, double> mean{
        {"fp32", 1.0}, {"AdamW8bit", 1.002}, {"all together", 1.002}, {"linear, tensor", 5.0}};
    mean[name] = loss;
    return failed_checks([&](Report& r) { check_losses(mean, seeds, "", r); });
  };
  const std::string increase = ": held-out loss, relative increase over fp32";
  const Names coded{"AdamW8bit" + increase}, all{"all together" + increase},
      linear{"linear, tensor" + increase};
  for (const int64_t seeds : {1, 7, 8}) EXPECT_EQ(failed("fp32", 1, seeds), Names{});
  for (const double wrong : {1.031, double(NAN)}) {
    EXPECT_EQ(failed("AdamW8bit", wrong, 1), coded);
    EXPECT_EQ(failed("all together", wrong, 7), all);
  }
  EXPECT_EQ(failed("AdamW8bit", 1.029, 7), Names{});
  EXPECT_EQ(failed("all together", 1.009, 8), Names{});
  EXPECT_EQ(failed("AdamW8bit", 1.006, 8), coded);
  EXPECT_EQ(failed("all together", 1.011, 8), all);
  EXPECT_EQ(failed("linear, tensor", 1.9, 1), linear);
}

TEST(L11_Checks, ErrorsOfStates) {
  using Errors = std::map<std::string, StateErrors>;
  Errors right;
  right["linear, tensor"].v_is_zero = 0.3, right["linear, blocks"].v_is_zero = 0.04;
  right["dynamic, blocks"].v_is_zero = 0.004, right["dynamic, v rounded up"].v_is_zero = 0;
  const Checked checked(right, check_errors);
  const auto failed = [&](const char* name, double zero) {
    return checked([&](Errors& all) { all[name].v_is_zero = zero; });
  };
  EXPECT_EQ(failed("dynamic, blocks", 0.021), Names{"share of v that underflows, blocks: dynamic / linear"});
  EXPECT_EQ(failed("linear, blocks", 0.16), Names{"share of v that underflows, linear: blocks / tensor"});
  EXPECT_EQ(failed("dynamic, v rounded up", 1e-6),
            Names{"share of v that underflows: dynamic, v rounded up"});
}

TEST(L11_Checks, Moves) {
  const std::vector<double> losses(size_t(kMovesSteps), 2.0);
  std::vector<Moved> right;
  for (const char* name : {"fp32", "dynamic, blocks", "dynamic, v rounded up", "AdamW8bit"}) {
    right.emplace_back();
    right.back().name = name, right.back().losses = losses;
    right.back().largest = right.back().largest_next = right.size() == 2 ? 300 : 1.5;
  }
  const Checked failed(right, moves_table);
  for (const double wrong : {19.9, double(NAN)}) {
    EXPECT_EQ(failed([=](auto& all) { all[1].largest = wrong; }),
              Names{"dynamic, blocks: largest move, in learning rates"});
    EXPECT_EQ(failed([=](auto& all) { all[1].largest_next = wrong; }),
              Names{"dynamic, blocks: largest next move if the gradient is 0"});
  }
  for (const size_t i : {2u, 3u})
    for (const double wrong : {8.1, double(NAN)}) {
      EXPECT_EQ(failed([=](auto& all) { all[i].largest = wrong; }),
                Names{right[i].name + ": largest move, in learning rates"});
      EXPECT_EQ(failed([=](auto& all) { all[i].largest_next = wrong; }),
                Names{right[i].name + ": largest next move if the gradient is 0"});
    }
  for (const size_t i : {2u, 3u})
    for (const size_t step : {size_t(0), losses.size() - 1})
      EXPECT_EQ(failed([=](auto& all) { all[i].losses[step] += 1e-15; }),
                Names{"AdamW8bit: losses that differ bitwise from 'dynamic, v rounded up'"});
  EXPECT_EQ(failed([](auto& all) {
              all[1].largest = all[1].largest_next = 1;
              for (Moved& m : all) m.losses.resize(3);
            }),
            Names{})
      << "too few steps for the checks of nearest codes";
}

TEST(L11_Checks, OfTimeDiffersWhereTheUpdateIsSlower) {
  const auto failed = [](double factor) {
    return failed_checks([&](Report& r) { check_update_time(factor, r); });
  };
  EXPECT_EQ(failed(1), Names{});
  EXPECT_EQ(failed(0.99), Names{"time of an update, 33,554,432 parameters: fp32 / 8 bits"});
}

TEST(L11_Moves, AreCounted) {
  Moved m;
  m.add({1, 2, 3}, {1.5f, 2, 2.75f}, 0.25);
  EXPECT_EQ(m.largest, 2);
  EXPECT_EQ(m.far, 0);
  m.add({0, 0}, {-2.25f, 2}, 0.25);
  EXPECT_EQ(m.largest, 9);
  EXPECT_EQ(m.far, 1);
  m.add({0, 0}, {NAN, 0}, 0.25);
  EXPECT_TRUE(std::isnan(m.largest)) << "a weight that became NaN did not move by a small amount";
  EXPECT_EQ(m.far, 2);
  EXPECT_EQ(m.all, 7);
}

// Compares with AdamW itself: n updates, then one with the gradient 0.
TEST(L11_Moves, AMoveWithoutAGradientIsThatOfAdamW) {
  RecordProperty("exercise", "11.7");
  for (const AdamWArgs args : {AdamWArgs{}, AdamWArgs{.beta1 = 0.8f, .beta2 = 0.99f, .eps = 1e-3f}}) {
    const Context context("cpu");
    Parameters parameters;
    Parameter& p = parameters.add("w", {4}, {});
    copy_from_host(p.value, std::vector<double>(4, 0.0));
    AdamW optimizer(parameters, args);
    const auto step = [&](const std::vector<float>& g) {
      const std::vector<double> before = to_host<double>(p.value);
      p.leaf.grad = from_host(current().device, g, {4}, DType::F32, Kind::Gradient, "g");
      p.leaf.written = true;
      optimizer.step(0x1p-6);
      std::vector<double> moves = to_host<double>(p.value);
      for (size_t i = 0; i < 4; ++i) moves[i] = std::abs(moves[i] - before[i]) * 64;
      return moves;
    };
    for (int64_t n = 1; n <= 5; ++n) {
      step({0.5f, -0.01f * float(n), n == 1 ? 1e-4f : 0.0f, 0});
      const std::vector<double> m = to_host<double>(optimizer.states[0].tensors[0]),
                                v = to_host<double>(optimizer.states[0].tensors[1]),
                                moves = step({0, 0, 0, 0});
      for (size_t i = 0; i < 4; ++i)
        EXPECT_NEAR(move_without_gradient(m[i], v[i], 2 * n - 1, args), moves[i], 1e-4 * moves[i])
            << "after " << 2 * n - 1
            << " updates: do m and v decay with a gradient of 0, and is n + 1 the number of the next update?";
    }
  }
  const double lost = move_without_gradient(1e-5, 0, 1, {});
  EXPECT_NEAR(lost, 0.9 * 1e-5 / 0.19 / 1e-8, 1)
      << "with v = 0, m is divided by epsilon alone"
      << usual_mistake(
             {{std::abs(lost - 1e-5 / 0.19 / 1e-8) < 1,
               "m did not decay: what does an update with the gradient 0 do to m first?"},
              {std::abs(lost - 0.9 * 1e-5 / 0.1 / 1e-8) < 1,
               "the bias correction is that of update n, but the next update is n + 1"},
              {std::abs(lost - 0.9 * 1e-5 / 1e-8) < 1, "the bias correction of m and v is missing"}});
  EXPECT_NEAR(move_without_gradient(-1e-5, 3.25e-7, 1, {}),
              0.9 * 1e-5 / 0.19 / std::sqrt(3.25e-7 * 0.999 / 0.001999), 1e-4)
      << "a negative m gives a negative result, but a distance has no sign";
}

}  // namespace
}  // namespace gradus
