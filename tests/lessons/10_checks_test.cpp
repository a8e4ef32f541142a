// Each check that lesson 10 makes passes with right values, and fails with a planted wrong one.
#include <cmath>

#include "lessons/10_quantization/tables.h"
#include "tests/devices.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

TEST(L10_Checks, NF4) {
  const std::vector<float> right = normal_float(0.9677083);
  const auto failed = [&](const std::vector<float>& made, int64_t bytes) {
    return failed_checks([&](Report& r) { check_nf4(nf4_difference(made), bytes, 640, r); });
  };
  EXPECT_EQ(failed(right, 640 / 2 + 4 * 10), Names{});
  for (const int64_t more : {-4, 4})
    EXPECT_EQ(failed(right, 360 + more), Names{"NF4: bytes of the token embeddings"});
  const Names values{"NF4: published values beside quantiles made anew"};
  for (const size_t i : {0, 9, 15})
    for (const float wrong : {right[i] + 4e-7f, right[i] - 4e-7f, NAN}) {
      std::vector<float> made = right;
      made[i] = wrong;
      EXPECT_EQ(failed(made, 360), values) << i << ": " << wrong;
    }
  EXPECT_EQ(failed({right.begin(), right.end() - 1}, 360), values) << "fewer";
  EXPECT_EQ(failed({}, 360), values) << "none";
}

TEST(L10_Checks, Damage) {
  const auto failed = [](const std::string& format, const std::function<void(FormatDamage&)>& plant) {
    std::vector<FormatDamage> all;
    for (const std::string& name : format_names()) {
      const double normal = name == "NF4, blocks" ? 0.09 : 0.1, outlier = name == "absmax" ? 0.3 : 0.02;
      all.push_back({name, {normal, 1, 4100}, {outlier, 1, 4100}, {0.1, 1, 4100}, 4100});
      if (name == format) plant(all.back());
    }
    return failed_checks([&](Report& r) { damage_table(all, 4096, 1000, r); });
  };
  EXPECT_EQ(failed("", {}), Names{});
  for (const std::string& name : format_names())
    for (const int64_t more : {-1, 1})
      EXPECT_EQ(failed(name, [=](FormatDamage& d) { d.normal.bytes += more; }),
                Names{name + ": bytes of 4,096 numbers"});
  const Names outlier{"error with an outlier, blocks beside all in one"};
  EXPECT_EQ(failed("absmax, blocks", [](FormatDamage& d) { d.outlier.error = 0.031; }), outlier);
  EXPECT_EQ(failed("absmax, blocks", [](FormatDamage& d) { d.outlier.error = NAN; }), outlier);
  EXPECT_EQ(failed("absmax", [](FormatDamage& d) { d.outlier.error = 0.19; }), outlier);
  const Names normal{"error of NF4 beside FP4, normal numbers"};
  EXPECT_EQ(failed("NF4, blocks", [](FormatDamage& d) { d.normal.error = 0.096; }), normal);
  EXPECT_EQ(failed("FP4, blocks", [](FormatDamage& d) { d.normal.error = 0.094; }), normal);
  EXPECT_EQ(failed("FP4, blocks", [](FormatDamage& d) { d.normal.error = NAN; }), normal);
}

TEST(L10_Checks, HeldOutLosses) {
  const auto failed = [](const std::string& format, double loss, int64_t steps = 1500) {
    std::vector<Quality> all{{"fp32", 1000, 2}};
    for (const std::string& name : format_names())
      all.push_back({name, 500,
                     name == "range of fp16" ? 4.1
                     : name == "NF4, blocks" ? 2.1
                     : name == "FP4, blocks" ? 2.2
                                             : 2.001});
    for (Quality& q : all)
      if (q.format == format) q.loss = loss;
    return failed_checks([&](Report& r) { loss_table(all, 250, steps, r); });
  };
  EXPECT_EQ(failed("absmax", 9), Names{}) << "is shown, not checked";
  const std::string worse = ": held-out loss, worse than fp32's by",
                    off = ": held-out loss / fp32's, off 1 by",
                    beside_fp4 = "FP4, blocks: held-out loss, worse than with NF4 by";
  for (const double wrong : {3.9, 2.0, double(NAN)})
    EXPECT_EQ(failed("range of fp16", wrong), Names{"range of fp16" + worse});
  for (const double wrong : {2.011, 1.989})
    for (const std::string name : {"absmax, blocks", "dynamic, blocks"})
      EXPECT_EQ(failed(name, wrong), Names{name + off});
  EXPECT_EQ(failed("dynamic, blocks", NAN), Names{"dynamic, blocks" + off});
  EXPECT_EQ(failed("NF4, blocks", 2.31), (Names{"NF4, blocks" + worse, beside_fp4}));
  EXPECT_EQ(failed("NF4, blocks", 1.9), Names{"NF4, blocks: held-out loss, worse than with 8 bits by"})
      << "a loss that is too low";
  for (const double wrong : {2.09, 2.0, double(NAN)})
    EXPECT_EQ(failed("FP4, blocks", wrong), Names{beside_fp4}) << wrong;
  EXPECT_EQ(failed("FP4, blocks", 1.9), Names{beside_fp4}) << "better than fp32, and so than NF4";
  EXPECT_EQ(failed("NF4, blocks", 9, 1499), Names{}) << "another run than the bounds are meant for";
}

// What these checks are given by the lesson.
struct L10_MeasuredOn : ::testing::TestWithParam<const char*> {
  Context context{GetParam()};
};
ON_DEVICES_WITH_DATA(L10_MeasuredOn);

TEST_P(L10_MeasuredOn, DamageOfNormalNumbersWithAnOutlierAndOfWeights) {
  const std::vector<float> normal = normal_numbers(4096, 3), weights = normal_numbers(1000, 4);
  std::vector<float> outlier = normal;
  outlier[2048] = 100;
  const std::vector<FormatDamage> all = measure_damage(4096, 3, weights);
  ASSERT_EQ(all.size(), format_names().size());
  for (size_t i = 0; i < all.size(); ++i) {
    const FormatDamage& d = all[i];
    EXPECT_EQ(d.format, format_names()[i]);
    for (const auto& [measured, x] :
         {std::pair(d.normal, &normal), {d.outlier, &outlier}, {d.weights, &weights}}) {
      const Damage want = damage(format_of(d.format, *x), *x);
      EXPECT_EQ(measured.error, want.error) << d.format;
      EXPECT_EQ(measured.codes_used, want.codes_used) << d.format;
      EXPECT_EQ(measured.bytes, want.bytes) << d.format;
      EXPECT_GT(measured.error, 0) << d.format;
    }
    EXPECT_EQ(d.predicted, d.normal.bytes) << d.format;
  }
  EXPECT_EQ(failed_checks([&](Report& r) { damage_table(all, 4096, weights.size(), r); }), Names{});
}

}  // namespace
}  // namespace gradus
