// cross_entropy with targets of -1 and with a count: compared with finite differences, and what it refuses,
// saves and checks. (Its values: tests/kernels/softmax_test.cpp.)
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "src/autograd/gradcheck.h"
#include "src/core/rng.h"
#include "src/ops/ops.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"
#include "tests/tape_testing.h"

namespace gradus {
namespace {

using Ids = std::vector<int32_t>;
using Values = std::vector<double>;
Values normals(int64_t n, uint64_t stream) {
  Rng rng(11, stream);
  Values values(static_cast<size_t>(n));
  for (double& v : values) v = rng.normal();
  return values;
}
Tensor floats(const Values& values, const Shape& shape, DType t = DType::F64) {
  return from_host(current().device, values, shape, t, Kind::Data, "x");
}
Tensor number(double value, DType t = DType::F64) { return floats({value}, {1}, t); }
struct Result {
  Values loss, gradient;
  bool operator==(const Result&) const = default;
};
// The loss and the gradient for logits (targets, 5), with a count if one is given.
Result run(const Ids& targets, DType t = DType::F64, const Tensor& count = {}, uint64_t stream = 1) {
  const auto rows = int64_t(targets.size());
  Tensor logits = floats(normals(rows * 5, stream), {rows, 5}, t);
  Leaf leaf;
  attach(logits, leaf, "logits");
  Tape tape;
  const Tensor loss = cross_entropy(logits, ids_of(targets, {rows}), count);
  EXPECT_EQ(loss.numel(), 1);
  EXPECT_EQ(loss.dtype(), statistics_dtype(t));
  tape.backward(loss);
  return {to_host<double>(loss), to_host<double>(leaf.grad)};
}

struct L07_CrossEntropy : TapeTest {};

TEST_F(L07_CrossEntropy, GradientsOfTargetsThatDoNotCountWithAndWithoutCount) {
  struct Case {
    Ids targets;
    double count;  // 0: none is given
  };
  const Ids some{-1, 4, 2, -1, 2, 0}, all{3, 4, 2, 1, 2, 0}, one{-1, -1, -1, -1, 1, -1};
  for (const Case& c :
       {Case{some, 0}, {some, 4}, {some, 9}, {some, 2.5}, {all, 0}, {all, 13}, {one, 0}, {one, 6}}) {
    const auto f = [&](const std::vector<Tensor>& x) {
      const Tensor count = c.count > 0 ? number(c.count) : Tensor();
      return cross_entropy(x[0], ids_of(c.targets, {2, 3}), count);
    };
    const std::vector<GradcheckInput> logits{{{2, 3, 5}, normals(30, 1)}};
    const GradcheckResult right = gradcheck(f, logits);
    EXPECT_TRUE(right.passed()) << "count " << c.count << ": " << right.where;
    for (const double mutant : {1.01, 0.99})
      EXPECT_FALSE(gradcheck(f, logits, 1, mutant).passed()) << "a 1 % wrong gradient passed";
  }
}

// The basis of accumulation: micro-batches of one batch, each divided by the target count of the whole batch.
TEST_F(L07_CrossEntropy, SharesOfPartsAddUpToTheMeanOfAll) {
  const Ids targets{0, -1, 3, 4, -1, -1, 2, 2};
  const Tensor logits = floats(normals(40, 1), {8, 5}), ids = ids_of(targets, {8}), five = number(5);
  const double mean = item(cross_entropy(logits, ids));
  double shares = 0, of_means = 0;
  for (const auto& [first, n] : {std::pair<int64_t, int64_t>(0, 1), {1, 3}, {4, 2}, {6, 2}}) {
    shares += item(cross_entropy(logits.narrow(first, n), ids.narrow(first, n), five));
    if (first != 4) of_means += item(cross_entropy(logits.narrow(first, n), ids.narrow(first, n))) / 3;
  }
  EXPECT_NEAR(shares, mean, 1e-14 * mean);
  EXPECT_GT(std::abs(of_means - mean), 0.01 * mean)
      << "the mean of the micro-batches' means must differ from the mean over all targets";
}

TEST_F(L07_CrossEntropy, TheCountMayBeAViewAndOfAnyShapeOfOneElement) {
  for (const char* device : {"cpu", "emu"}) {
    const Context own(device, 5);
    const Ids targets{3, -1, 0};
    const Result expected = run(targets, DType::F32, number(11, DType::F32));
    const Tensor counts = floats({3, 7, 11, 5}, {4}, DType::F32);
    EXPECT_EQ(run(targets, DType::F32, counts.narrow(2, 1)), expected) << device;
    EXPECT_EQ(run(targets, DType::F32, counts.reshape({2, 2}).reshape({4}).narrow(2, 1)), expected) << device;
    EXPECT_NE(run(targets, DType::F32, counts.narrow(3, 1)), expected) << device;
    EXPECT_EQ(run(targets, DType::F32, floats({11}, {}, DType::F32)), expected) << "a scalar, on " << device;
  }
}

TEST_F(L07_CrossEntropy, ACountThatIsNotOneNumberIsRefused) {
  for (const char* device : {"cpu", "meta"}) {
    const Context own(device, 5);
    const auto of = [&](const Shape& shape, DType t) {
      return Tensor(current().device, shape, t, Kind::Data, "x");
    };
    const Tensor logits = floats(Values(10), {2, 5}, DType::F32), targets = ids_of({1, 2}, {2});
    EXPECT_EQ(refusal([&] { cross_entropy(logits, targets, of({1}, DType::F32)); }), "");
    for (const Shape& wrong : {Shape{2}, Shape{0}, Shape{1, 2}, Shape{2, 5}}) {
      const std::string text = refusal([&] { cross_entropy(logits, targets, of(wrong, DType::F32)); });
      EXPECT_TRUE(text.starts_with("cross_entropy: ")) << wrong << ": " << text;
      EXPECT_NE(text.find("count"), std::string::npos) << wrong << ": " << text;
      std::ostringstream shape;
      shape << wrong;
      EXPECT_NE(text.find(shape.str()), std::string::npos) << wrong << ": " << text;
    }
    if (!current().device.has_data()) continue;  // kernels see the type
    for (const DType wrong : {DType::F64, DType::BF16, DType::F16, DType::I32}) {
      const std::string text = refusal([&] { cross_entropy(logits, targets, of({1}, wrong)); });
      EXPECT_TRUE(text.starts_with("cross_entropy")) << name_of(wrong) << " on " << device << ": " << text;
      EXPECT_NE(text.find("count"), std::string::npos) << name_of(wrong) << " on " << device << ": " << text;
    }
  }
}

TEST_F(L07_CrossEntropy, ARefusedCallRecordsNothing) {
  Tensor logits = floats(normals(10, 1), {2, 5});
  Leaf leaf;
  attach(logits, leaf, "logits");
  Tape tape;
  expect_refused("count", [&] { cross_entropy(logits, ids_of({1, 2}, {2}), floats({1, 2}, {2})); });
  EXPECT_TRUE(tape.nodes().empty());
  EXPECT_EQ(leaf.uses, 0);
}

TEST_F(L07_CrossEntropy, ACountThatChangedBeforeBackwardIsRefused) {
  for (const bool view : {false, true}) {
    Tensor logits = floats(normals(10, 1), {2, 5});
    Leaf leaf;
    attach(logits, leaf, "logits");
    Tensor counts = floats({4, 9}, {2});
    {
      Tape tape;
      const Tensor loss = cross_entropy(logits, ids_of({1, -1}, {2}), counts.narrow(0, 1));
      Tensor written = view ? counts.narrow(0, 1) : counts;
      copy_from_host(written, view ? Values{5} : Values{5, 9});
      expect_refused("cross_entropy: its saved tensor", [&] { tape.backward(loss); });
    }
    Tape tape;
    const Tensor loss = cross_entropy(logits, ids_of({1, -1}, {2}), counts.narrow(0, 1));
    EXPECT_EQ(refusal([&] { tape.backward(loss); }), "")
        << "count changed before the forward pass, which is allowed";
  }
}

TEST_F(L07_CrossEntropy, TheCountIsSavedOnlyIfTheLogitsWantAGradient) {
  Tensor logits = floats(normals(10, 1), {2, 5});
  Leaf leaf;
  attach(logits, leaf, "logits");
  const Tensor targets = ids_of({1, 2}, {2});
  for (const bool trains : {true, false}) {
    const Tensor count = number(3);
    Tape tape;
    const Tensor loss = cross_entropy(trains ? logits : logits.detach(), targets, count);
    EXPECT_EQ(tape.nodes().size(), trains ? 1u : 0u);
    EXPECT_EQ(count.shares_storage(), trains);
    if (!trains) continue;
    int of_count = 0;
    for (const Saved& s : tape.nodes()[0].saved)
      of_count += s.tensor.defined() && &s.tensor.storage() == &count.storage();
    EXPECT_EQ(of_count, 1);
    EXPECT_EQ(count.storage().kind(), Kind::Data) << "count belongs to the batch; it is not an activation";
    tape.backward(loss);
    EXPECT_FALSE(count.shares_storage()) << "backward must release the count that was saved";
  }
  const NoTape none;
  const Tensor count = number(3);
  cross_entropy(logits, targets, count);
  EXPECT_FALSE(count.shares_storage());
}

}  // namespace
}  // namespace gradus
