// Ops with several outputs, each of which may be used or unused.
#include "src/autograd/gradcheck.h"
#include "src/core/rng.h"
#include "src/ops/ops.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

using Parts = std::vector<Tensor>;

// Bit i of `used`: output i is used.
Tensor of_parts(const Parts& parts, unsigned used) {
  Parts some;
  for (size_t i = 0; i < parts.size(); ++i)
    if (used >> i & 1) some.push_back(scale(parts[i], double(i) + 1.5));
  return concatenate(some);
}
constexpr unsigned kAll = 7;
Parts in_three(const Tensor& x) { return split(x, {2, 1, 3}); }

struct L03_Outputs : TapeTest {};

TEST_F(L03_Outputs, GradientsForEverySubsetThatIsUsed) {
  Rng rng(1, 1);
  GradcheckInput x{{2, 2, 6}, {}};
  for (int i = 0; i < 24; ++i) x.values.push_back(rng.normal());
  for (unsigned used = 1; used <= kAll; ++used) {
    const auto f = [&](const Parts& in) { return of_parts(in_three(in[0]), used); };
    const GradcheckResult result = gradcheck(f, {x});
    EXPECT_TRUE(result.passed()) << used << ": " << result.where;
    EXPECT_FALSE(gradcheck(f, {x}, 1, 1.01).passed()) << used << ": a 1 % wrong gradient passed";
  }
}

// Gradients of two uses are summed, a view belongs to its output, and the input may have been used before.
TEST_F(L03_Outputs, UsedTwiceThroughViewsAndBesideTheInput) {
  Rng rng(1, 2);
  GradcheckInput x{{2, 6}, {}};
  for (int i = 0; i < 12; ++i) x.values.push_back(rng.normal());
  const auto f = [](const Parts& in) {
    const Tensor h = scale(in[0], 0.5);
    const Parts a = in_three(h), b = split(h, {3, 3});
    const Tensor flat = scale(a[2].reshape({6}), 3);
    return concatenate({flat, add(a[2], b[0]).reshape({6}), multiply(h, h).reshape({12})});
  };
  const GradcheckResult result = gradcheck(f, {x});
  EXPECT_TRUE(result.passed()) << result.where;
}

TEST_F(L03_Outputs, OnEveryDeviceInEachTypeWithSetAndAdd) {
  for (const char* device : devices_with_data())
    for (const DType t : {DType::F32, DType::BF16, DType::F16})
      for (unsigned used = 1; used <= kAll; ++used) {
        Context other(device, 5);
        const std::vector<double> values{1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6};
        Tensor x = from_host(other.device, values, {2, 6}, t, Kind::Weight, "x");
        Leaf dx;
        attach(x, dx, "x");
        for (int pass = 0; pass < 2; ++pass) {
          Tape tape;
          const Tensor y = of_parts(in_three(x), used);
          tape.backward(y, from_host(other.device, std::vector<double>(size_t(y.numel()), 1), y.shape(), t,
                                     Kind::Temporary, "dy"));
        }
        const double factors[] = {3, 3, 5, 7, 7, 7};  // twice the factors of of_parts
        const std::vector<double> got = to_host<double>(dx.grad);
        for (size_t i = 0; i < 12; ++i) {
          const size_t part = i % 6 < 2 ? 0 : i % 6 < 3 ? 1 : 2;
          EXPECT_EQ(got[i], used >> part & 1 ? factors[i % 6] : 0)
              << device << " " << name_of(t) << ", used " << used << ", element " << i;
        }
      }
}

TEST_F(L03_Outputs, BackwardIsNotCalledForOneThatNothingDependsOn) {
  Tensor x = trains(tensor({1, 2, 3, 4}, {4}));
  Tape tape;
  const auto call = [](const Node&, const Parts&, Grads&) { fail("it was called"); };
  const Parts unused = record("two", {x}, {}, {tensor({1}, {1}), tensor({2}, {1})}, call);
  const Tensor y = scale(x, 2);
  ASSERT_EQ(tape.nodes()[0].outputs.size(), 2u);
  EXPECT_TRUE(unused[0].slot.wanted() && unused[1].slot.wanted());
  EXPECT_NE(unused[0].slot.id, unused[1].slot.id);
  tape.backward(y, tensor({1, 1, 1, 1}, {4}));
  EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(4, 2));
}

TEST_F(L03_Outputs, BackwardFindsTheGradientsThatAreThere) {
  Tensor x = trains(tensor({1, 2}, {2}));
  for (const size_t used : {0u, 1u}) {
    Tape tape;
    const Parts y = record("two", {x}, {}, {tensor({1, 2}, {1, 2}), tensor({3, 4}, {2, 1})},
                           [used](const Node&, const Parts& dy, Grads& dx) {
                             ASSERT_EQ(dy.size(), 2u);
                             EXPECT_FALSE(dy[1 - used].defined());
                             EXPECT_EQ(dy[used].shape(), used == 0 ? (Shape{1, 2}) : (Shape{2, 1}));
                             EXPECT_FALSE(dy[used].slot.wanted());
                             dx.pass(0, dy[used]);
                           });
    leaf.zero();
    tape.backward(scale(y[used].reshape({2}), 2), tensor({1, 10}, {2}));
    EXPECT_EQ(to_host<double>(leaf.grad), (std::vector<double>{2, 20}));
  }
}

TEST_F(L03_Outputs, AGradientThatIsGivenWantsNone) {
  Tensor x = trains(tensor({1, 2}, {2})), dy = tensor({1, 1}, {2});
  Leaf other;
  attach(dy, other, "dy");
  Tape tape;
  const Parts y = record("two", {x}, {}, {tensor({1, 2}, {2}), tensor({3}, {1})},
                         [](const Node&, const Parts& dy, Grads&) { EXPECT_FALSE(dy[0].slot.wanted()); });
  tape.backward(y[0], dy);
}

TEST_F(L03_Outputs, WhatWasSavedMustBeUnchangedWhicheverIsUsed) {
  for (const size_t used : {0u, 1u}) {
    Tensor x = trains(tensor({1, 2}, {2})), s = tensor({5}, {1});
    Tape tape;
    const Parts y = record("two", {x}, {{s}}, {tensor({1, 2}, {2}), tensor({3, 4}, {2})},
                           [](const Node&, const Parts&, Grads&) {});
    s.add();
    expect_refused("two: its saved tensor", [&] { tape.backward(y[used], tensor({1, 1}, {2})); });
  }
}

TEST_F(L03_Outputs, SomeMayBeEmpty) {
  const Tensor x = trains(tensor({1, 2, 3, 4}, {2, 2}));
  Tape tape;
  const Parts p = split(x, {0, 2, 0});
  tape.backward(concatenate({p[0], scale(p[1], 3), p[2]}), tensor({1, 1, 1, 1}, {2, 2}));
  EXPECT_EQ(to_host<double>(leaf.grad), std::vector<double>(4, 3));
}

TEST_F(L03_Outputs, PrintedWithAllTheirShapesAndTestedForNan) {
  Tensor x = trains(tensor({1, 2, NAN, 4}, {2, 2}));
  Tape tape;
  split(x, {1, 1});
  std::ostringstream printed;
  tape.print(printed);
  EXPECT_NE(printed.str().find("[2,1] [2,1]"), std::string::npos) << printed.str();
  split(x, {0, 2});
  context.check_finite = true;
  split(tensor({1, NAN}, {2}).narrow(0, 1), {1, 0});
  expect_refused("split: element 0 of the output [1] is nan", [&] { split(tensor({1, NAN}, {2}), {1, 1}); });
}

// A segment may drop any output of its ops.
TEST_F(L03_Outputs, ACheckpointMakesEachOutputAnew) {
  const auto f = [](const Tensor& x) {
    const Parts y = in_three(gelu(x));
    const Tensor a = multiply(gelu(y[0]), y[0]), b = multiply(y[2], gelu(y[2]));
    return concatenate({b, y[1], a});
  };
  std::vector<std::vector<double>> gradients;
  std::vector<int64_t> kept;
  for (const bool again : {false, true}) {
    const Tensor x = trains(tensor({0.5, -1, 2, 0.1, -0.3, 1, 0.2, 0.7, -0.6, 1.5, -2, 3}, {2, 6}));
    Tape tape;
    const Tensor y = again ? checkpoint(x, f) : f(x);
    kept.push_back(tape.saved_bytes());
    leaf.zero();
    tape.backward(y, x.detach());
    gradients.push_back(to_host<double>(leaf.grad));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_EQ(kept[1], 0) << "x is of kind weight";
  EXPECT_EQ(kept[0], 4 * (2 * (4 + 6))) << "y[0] and y[2], and gelu of both; gelu's x is the weight";
}

}  // namespace
}  // namespace gradus
