// Each check of lesson 10 passes with right values and fails with a planted wrong value.
#include <cmath>

#include "lessons/10_quantization/tables.h"
#include "tests/devices.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

TEST(L10_Checks, NF4) {
  const std::vector<float> right = normal_float(0.9677083);
  const auto failed = [&](const std::vector<float>& computed, int64_t bytes) {
    return failed_checks([&](Report& r) { check_nf4(nf4_difference(computed), bytes, 640, r); });
  };
  EXPECT_EQ(failed(right, 640 / 2 + 4 * 10), Names{});
  for (const int64_t more : {-4, 4})
    EXPECT_EQ(failed(right, 360 + more), Names{"NF4: bytes of the quantized token embedding"});
  const Names values{"NF4: published and computed values, largest difference"};
  for (const size_t i : {0, 9, 15})
    for (const float wrong : {right[i] + 4e-7f, right[i] - 4e-7f, NAN}) {
      std::vector<float> computed = right;
      computed[i] = wrong;
      EXPECT_EQ(failed(computed, 360), values) << i << ": " << wrong;
    }
  EXPECT_EQ(failed({right.begin(), right.end() - 1}, 360), values) << "15 values";
  EXPECT_EQ(failed({}, 360), values) << "no values";
}

TEST(L10_Checks, Errors) {
  const auto failed = [](const std::string& format, const std::function<void(FormatErrors&)>& plant) {
    std::vector<FormatErrors> all;
    for (const std::string& name : format_names()) {
      const double normal = name == "NF4, blocks" ? 0.09 : 0.1, outlier = name == "absmax" ? 0.3 : 0.02;
      all.push_back({name, {normal, 1, 4100}, {outlier, 1, 4100}, {0.1, 1, 4100}, 4100});
      if (name == format) plant(all.back());
    }
    return failed_checks([&](Report& r) { error_table(all, 4096, 1000, r); });
  };
  EXPECT_EQ(failed("", {}), Names{});
  for (const std::string& name : format_names())
    for (const int64_t more : {-1, 1})
      EXPECT_EQ(failed(name, [=](FormatErrors& d) { d.normal.bytes += more; }),
                Names{name + ": bytes of 4,096 numbers"});
  const Names outlier{"error with one outlier: absmax in blocks / absmax"};
  EXPECT_EQ(failed("absmax, blocks", [](FormatErrors& d) { d.outlier.error = 0.031; }), outlier);
  EXPECT_EQ(failed("absmax, blocks", [](FormatErrors& d) { d.outlier.error = NAN; }), outlier);
  EXPECT_EQ(failed("absmax", [](FormatErrors& d) { d.outlier.error = 0.19; }), outlier);
  const Names normal{"error of normal numbers: NF4 / FP4, both in blocks"};
  EXPECT_EQ(failed("NF4, blocks", [](FormatErrors& d) { d.normal.error = 0.096; }), normal);
  EXPECT_EQ(failed("FP4, blocks", [](FormatErrors& d) { d.normal.error = 0.094; }), normal);
  EXPECT_EQ(failed("FP4, blocks", [](FormatErrors& d) { d.normal.error = NAN; }), normal);
}

TEST(L10_Checks, HeldOutLosses) {
  const auto failed = [](const std::string& format, double loss, int64_t steps = 1500) {
    std::vector<Quality> all{{"fp32", 1000, 2}};
    for (const std::string& name : format_names())
      all.push_back({name, 500,
                     name == "range of fp16" ? 4.1
                     : name == "NF4, blocks" ? 2.1
                     : name == "FP4, blocks" ? 2.4
                                             : 2.001});
    for (Quality& q : all)
      if (q.format == format) q.loss = loss;
    return failed_checks([&](Report& r) { loss_table(all, 250, steps, r); });
  };
  EXPECT_EQ(failed("absmax", 9), Names{}) << "the loss of absmax is shown, not checked";
  const std::string increase = ": held-out loss, relative increase over fp32",
                    difference = ": held-out loss, relative difference from fp32",
                    fp4_nf4 = "relative increase of the held-out loss: FP4 minus NF4, both in blocks",
                    nf4_absmax =
                        "relative increase of the held-out loss: NF4 minus absmax of 8 bits, both in blocks";
  for (const double wrong : {3.9, 2.0, double(NAN)})
    EXPECT_EQ(failed("range of fp16", wrong), Names{"range of fp16" + increase});
  for (const double wrong : {2.011, 1.989})
    for (const std::string name : {"absmax, blocks", "dynamic, blocks"})
      EXPECT_EQ(failed(name, wrong), Names{name + difference});
  EXPECT_EQ(failed("dynamic, blocks", NAN), Names{"dynamic, blocks" + difference});
  EXPECT_EQ(failed("NF4, blocks", 2.31), Names{"NF4, blocks" + increase});
  EXPECT_EQ(failed("NF4, blocks", 1.9), Names{nf4_absmax}) << "the loss is too low";
  for (const double wrong : {2.09, 2.0, double(NAN)})
    EXPECT_EQ(failed("FP4, blocks", wrong), Names{fp4_nf4}) << wrong;
  EXPECT_EQ(failed("FP4, blocks", 1.9), Names{fp4_nf4}) << "lower than in fp32, so lower than with NF4";
  EXPECT_EQ(failed("NF4, blocks", 9, 1499), Names{}) << "the bounds are for 1500 steps";
}

TEST(L10_Checks, SharesOfCodes) {
  const auto failed = [](const std::vector<double>& shares) {
    return failed_checks([&](Report& r) { share_table(shares, 100, r); });
  };
  EXPECT_EQ(failed({0.2, 0.3, 0.5}), Names{});
  const Names ratio{"NF4, normal numbers: largest share of a code / smallest share"};
  EXPECT_EQ(failed({0.3, 0.3, 0.4}), ratio);
  EXPECT_EQ(failed({0, 0, 0}), ratio) << "no number has a code";
}

TEST(L10_Checks, PlainLoopsAndKernel) {
  const auto failed = [](double plain) {
    return failed_checks([&](Report& r) { check_plain(plain, 0.5, r); });
  };
  EXPECT_EQ(failed(0.5), Names{});
  EXPECT_EQ(failed(0.5 + 1e-6), Names{});
  for (const double wrong : {0.5001, 0.4999, 0.0, double(NAN)})
    EXPECT_EQ(failed(wrong),
              Names{"absmax, blocks: error in plain loops compared with the kernel's, relative difference"});
}

// The measurements that the lesson passes to these checks.
struct L10_MeasuredOn : ::testing::TestWithParam<const char*> {
  Context context{GetParam()};
};
ON_DEVICES_WITH_DATA(L10_MeasuredOn);

TEST_P(L10_MeasuredOn, ErrorsOfNormalNumbersWithAnOutlierAndOfWeights) {
  const std::vector<float> normal = normal_numbers(4096, 3), weights = normal_numbers(1000, 4);
  std::vector<float> outlier = normal;
  outlier[2048] = 100;
  const std::vector<FormatErrors> all = measure_errors(4096, 3, weights);
  ASSERT_EQ(all.size(), format_names().size());
  for (size_t i = 0; i < all.size(); ++i) {
    const FormatErrors& e = all[i];
    EXPECT_EQ(e.format, format_names()[i]);
    for (const auto& [measured, x] :
         {std::pair(e.normal, &normal), {e.outlier, &outlier}, {e.weights, &weights}}) {
      const Measured want = measure(format_of(e.format, *x), *x);
      EXPECT_EQ(measured.error, want.error) << e.format;
      EXPECT_EQ(measured.codes_used, want.codes_used) << e.format;
      EXPECT_EQ(measured.bytes, want.bytes) << e.format;
      EXPECT_GT(measured.error, 0) << e.format;
    }
    EXPECT_EQ(e.predicted, e.normal.bytes) << e.format;
  }
  EXPECT_EQ(failed_checks([&](Report& r) { error_table(all, 4096, weights.size(), r); }), Names{});
}

}  // namespace
}  // namespace gradus
