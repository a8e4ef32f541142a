// Lesson 02: its data (two spirals drawn from a seed), its picture and its checks.
#include <gtest/gtest.h>

#include <cmath>

#include "lessons/02_autograd/spirals.h"
#include "src/tensor/context.h"
#include "tests/folder_testing.h"
#include "tests/io/png_testing.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

TEST(L02_Spirals, AreThoseOfTheirSeed) {
  const Spirals one(64, 1), again(64, 1);
  EXPECT_EQ(one.x, again.x);
  for (const uint64_t seed : {0, 2, 3, 443}) EXPECT_NE(Spirals(64, seed).x, one.x) << seed;
  const Spirals longer(100, 1);
  EXPECT_TRUE(std::equal(one.x.begin(), one.x.end(), longer.x.begin()))
      << "with more points, the first ones must stay the same";
}

TEST(L02_Spirals, AlternateAndOneIsTheOtherRotatedByHalfATurn) {
  const Spirals s(1000, 5);
  ASSERT_EQ(s.x.size(), 2000u);
  ASSERT_EQ(s.label.size(), 1000u);
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(s.label[size_t(i)], i % 2);
    // The radius determines the angle. The noise has standard deviation 0.02, so it moves points less than
    // 0.12.
    const double sign = i % 2 ? -1 : 1, x = sign * s.x[size_t(2 * i)], y = sign * s.x[size_t(2 * i + 1)];
    double nearest = INFINITY;
    for (double t = 0.25; t <= 3; t += 0.001) {
      const double angle = 1.75 * t * M_PI / 1.5;
      nearest = std::min(nearest, std::hypot(x - t / 3 * std::cos(angle), y - t / 3 * std::sin(angle)));
    }
    ASSERT_LT(nearest, 0.12) << "point " << i;
  }
}

struct L02_Boundary : FolderTest {
  Context context;
  // Draws two points, and a plane in which spiral 1 has probability 1 where coordinate `along` is above 0 (0
  // is x, 1 is y).
  PngFile draw(size_t along) {
    Spirals data(0, 1);
    data.x = {0.5f, 0.9f, -0.5f, -0.9f}, data.label = {1, 0};
    const auto logits = [&](const Tensor& at) {
      std::vector<float> z = to_host<float>(at);
      for (size_t i = 0; i < z.size(); i += 2) z[i + 1] = 1000 * z[i + along], z[i] = 0;
      return from_host(context.device, z, at.shape(), DType::F32, Kind::Data, "logits");
    };
    draw_boundary(logits, data, path("p.png"));
    return PngFile(path("p.png"));
  }
};

TEST_F(L02_Boundary, XRunsRightAndYRunsUpOfThePlaneAndOfThePoints) {
  const Rgb blue{150, 190, 235}, orange{250, 195, 140}, point_0{31, 99, 180}, point_1{225, 110, 20};
  for (const size_t along : {0, 1}) {
    const PngFile picture = draw(along);
    const auto at = [&](double x, double y) {  // the plane runs from -1.2 to 1.2, y points up
      const auto pixel = [](double v, int side) { return std::min(int((v / 1.2 + 1) / 2 * side), side - 1); };
      return picture.at(pixel(x, picture.width), pixel(-y, picture.height));
    };
    for (const double x : {-1.1, -0.3, 0.3, 1.1})
      for (const double y : {-1.1, -0.3, 0.3, 1.1})
        EXPECT_EQ(at(x, y), (along == 0 ? x : y) > 0 ? orange : blue) << x << ", " << y;
    EXPECT_EQ(at(0.5, 0.9), point_1);
    EXPECT_EQ(at(-0.5, -0.9), point_0);
  }
}

TEST(L02_Spirals, TheGradientCheckPassesAndFailsForAGradientThatIsOnePercentWrong) {
  EXPECT_LT(mlp_gradcheck(1), 1);
  EXPECT_GT(mlp_gradcheck(1.01), 1);
  EXPECT_GT(mlp_gradcheck(0.99), 1);
}

TEST(L02_Checks, EachCheckFailsOnAWrongValue) {
  const auto failed = [](int64_t steps, const std::function<void(MlpRun&)>& plant) {
    MlpRun m{270, 480, 1, 1, 0.98, 1};  // 3 points, hidden width 5
    plant(m);
    return failed_checks([&](Report& r) { check_run(m, 3, 5, steps, r); });
  };
  EXPECT_EQ(failed(1000, [](MlpRun&) {}), Names{});
  for (const int64_t off : {-1, 1})
    EXPECT_EQ(failed(1000, [=](MlpRun& m) { m.backward_flops += off; }),
              Names{"FLOPs of the backward pass (matrix products)"});
  EXPECT_EQ(failed(1000, [](MlpRun& m) { m.forward_flops += 4, m.backward_flops += 8; }),
            Names{"FLOPs of the forward pass (matrix products)"});
  EXPECT_EQ(failed(1000, [](MlpRun& m) { m.gradcheck = 1.01; }),
            Names{"gradient check: largest error / allowed error"});
  EXPECT_EQ(failed(1000, [](MlpRun& m) { m.wrong_gradcheck = 0.99; }),
            Names{"gradient check of a gradient 1 % too large: largest error / allowed error"});
  EXPECT_EQ(failed(1000, [](MlpRun& m) { m.accuracy = 0.97; }), Names{"accuracy on the training points"});
  EXPECT_EQ(failed(1000, [](MlpRun& m) { m.backward_per_forward = 0.99; }),
            Names{"backward time / forward time"});
  EXPECT_EQ(failed(999, [](MlpRun& m) { m.accuracy = 0.5; }), Names{})
      << "with fewer than 1000 steps accuracy is not checked";
}

}  // namespace
}  // namespace gradus
