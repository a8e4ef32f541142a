// The output of --print=tape: a line per node, with its saved tensors; each storage counts once.
#include <gtest/gtest.h>

#include <sstream>

#include "src/autograd/gradcheck.h"
#include "src/ops/ops.h"
#include "src/tensor/context.h"

namespace gradus {
namespace {

struct L02_TapePrint : ::testing::Test {
  Context context{"cpu", 5};
  Tensor tensor(const Shape& shape, const char* name) {
    return from_host(context.device, std::vector<double>(size_t(shape.numel()), 0.5), shape, DType::F32,
                     Kind::Weight, name);
  }
};

std::vector<std::string> lines(const Tape& tape) {
  std::ostringstream out;
  tape.print(out);
  std::istringstream in(out.str());
  std::vector<std::string> found;
  for (std::string line; std::getline(in, line);) found.push_back(line);
  return found;
}
void expect_parts(const std::string& line, const std::vector<std::string>& parts) {
  size_t from = 0;  // in this order
  for (const std::string& part : parts) {
    const size_t at = line.find(part, from);
    ASSERT_NE(at, std::string::npos) << "\"" << part << "\" in: " << line;
    from = at + part.size();
  }
}

TEST_F(L02_TapePrint, ALineANodeInTheOrderOfTheForwardPass) {
  Tensor x = tensor({2, 3}, "x"), w = tensor({4, 3}, "w");
  Leaf leaf;
  attach(w, leaf, "w");
  Tape tape;
  EXPECT_EQ(lines(tape).size(), 2u) << "an empty tape prints only the header";
  EXPECT_EQ(tape.saved_bytes(), 0);
  const Tensor h = linear(scale(x, 2), w), y = tanh(h), z = scale(y, 3);
  const std::vector<std::string> printed = lines(tape);
  ASSERT_EQ(printed.size(), 2u + 3u) << "scale(x) depends on no parameter, so it is not on the tape";
  expect_parts(printed[0], {"op", "inputs", "output", "saved", "bytes"});
  expect_parts(printed[2], {"0", "linear", "[2,3](no grad)", "[4,3]", "[2,4]", "scale", "24"});
  expect_parts(printed[3], {"1", "tanh", "[2,4]", "[2,4]", "tanh", "32"});
  expect_parts(printed[4], {"2", "scale", "[2,4]", "[2,4]", "0"});
  EXPECT_EQ(printed[3].find("(no grad)"), std::string::npos) << printed[3];
  EXPECT_EQ(tape.saved_bytes(), 24 + 32);
  ASSERT_EQ(tape.nodes().size(), 3u);
  EXPECT_STREQ(tape.nodes()[0].op, "linear");
  EXPECT_STREQ(tape.nodes()[2].op, "scale");
  EXPECT_EQ(tape.nodes()[1].outputs[0].shape, (Shape{2, 4}));
  EXPECT_EQ(tape.nodes()[1].inputs[0].slot.id, tape.nodes()[0].outputs[0].slot.id);
  EXPECT_EQ(context.device.meter().now()[Kind::Activation], 24 + 32) << "the meter must count the same bytes";
  tape.backward(z, tensor({2, 4}, "dz"));
  EXPECT_TRUE(tape.nodes().empty()) << "backward() must consume the tape";
  EXPECT_EQ(tape.saved_bytes(), 0);
}

TEST_F(L02_TapePrint, BytesAreThoseOfTheDtype) {
  for (const DType t : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    Tensor x = from_host(context.device, std::vector<double>(30, 0.5), {30}, t, Kind::Weight, "x");
    Leaf leaf;
    attach(x, leaf, "x");
    Tape tape;
    const Tensor y = tanh(x), z = tanh(y);
    EXPECT_EQ(tape.saved_bytes(), 2 * 30 * size_of(t)) << name_of(t);
    expect_parts(lines(tape)[3], {"tanh", std::to_string(30 * size_of(t))});
  }
}

TEST_F(L02_TapePrint, WhatSeveralNodesSaveIsPrintedAgainButCountedOnce) {
  Tensor w = tensor({3, 3}, "w"), v = tensor({3, 3}, "v");
  Leaf leaf_w, leaf_v;
  attach(w, leaf_w, "w");
  attach(v, leaf_v, "v");
  Tape tape;
  const Tensor h = scale(tensor({2, 3}, "x"), 2), y = add(linear(h, w), linear(h, v));
  const std::vector<std::string> printed = lines(tape);
  ASSERT_EQ(printed.size(), 2u + 3u);
  expect_parts(printed[2], {"linear", "scale", "24"});
  expect_parts(printed[3], {"linear", "scale(again)", "0"});
  EXPECT_EQ(printed[2].find("again"), std::string::npos);
  EXPECT_EQ(tape.saved_bytes(), 24);
}

}  // namespace
}  // namespace gradus
