// Lesson 13: the bottlenecks found in the steps of a trace.
#include "lessons/13_profiler/diagnosis.h"

#include <gtest/gtest.h>

#include "tests/lessons/13_testing.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings) {
    char line[200];
    snprintf(line, sizeof line, "%s in %s: %.6g s, %lld\n", name_of(f.what), f.where.c_str(), f.seconds,
             static_cast<long long>(f.count));
    text += line;
  }
  return text;
}

TEST(L13_Diagnosis, AStepWithoutBottlenecksHasNoFindings) {
  EXPECT_EQ(
      text_of(diagnose(
          {{10,
            {range("data", 0, 0.4), range("data/copy to the device", 0.1, 0.2, "copy", 1 << 20),
             range("forward", 1, 4), range("copy to the host", 4, 5, "copy", 4), range("backward", 5, 9)},
            {kernel("forward/linear", "contraction", 2), wise("forward/add"), wise("forward/add"),
             wise("forward/add"), kernel("forward/layernorm", "normalization", 1)}}})),
      "");
}

TEST(L13_Diagnosis, LoadingIsWhereMostOfItsTimeGoes) {
  const auto found = [](std::vector<TracedSpan> ranges) {
    return text_of(diagnose({{10, std::move(ranges), {}}}));
  };
  EXPECT_EQ(found({range("data", 0, 3)}), "data loading in data: 3 s, 1\n");
  EXPECT_EQ(
      found({range("data", 0, 3), range("data/load text", 0.1, 2.9), range("data/load text/read", 0.2, 1)}),
      "data loading in data/load text: 2.8 s, 1\n");
  EXPECT_EQ(found({range("data", 0, 3), range("data/a", 0, 1.4), range("data/b", 1.4, 2.8)}),
            "data loading in data: 3 s, 1\n");
  EXPECT_EQ(found({range("data", 0, 0.4)}), "") << "4 % of the step";
  EXPECT_EQ(found({range("data", 0, 0.3), range("data", 1, 1.3)}), "data loading in data: 0.6 s, 2\n");
  EXPECT_EQ(found({range("forward", 0, 3), range("forward/data", 0, 3)}), "")
      << "this data range is not an outermost one";
}

TEST(L13_Diagnosis, CopiesToTheHostAreWorthTheRangeThatOnlyCopies) {
  const auto found = [](std::vector<TracedSpan> ranges) {
    return text_of(diagnose({{10, std::move(ranges), {}}}));
  };
  const auto copy = [](const std::string& where, double begin, double end, int64_t bytes) {
    return range(where + "copy to the host", begin, end, "copy", bytes);
  };
  EXPECT_EQ(found({copy("", 1, 2, 4096)}), "copy to the host in : 1 s, 4096\n");
  EXPECT_EQ(found({copy("", 1, 2, 4095)}), "");
  EXPECT_EQ(found({range("watch", 0, 5), copy("watch/", 1, 2, 5000), copy("watch/", 2, 2.5, 9000),
                   copy("watch/", 3, 3.1, 8)}),
            "copy to the host in watch: 5 s, 14000\n");
  EXPECT_EQ(found({range("forward", 0, 5), range("forward/linear", 0, 1), copy("forward/", 1, 2, 5000)}),
            "copy to the host in forward: 1 s, 5000\n")
      << "the range has an op, so only the copy is saved";
  EXPECT_EQ(found({range("a", 0, 1), copy("a/", 0, 0.5, 5000), range("a", 2, 4), copy("a/", 2, 3, 6000)}),
            "copy to the host in a: 3 s, 11000\n")
      << "two ranges with the same name";
  EXPECT_EQ(found({range("h.0", 0, 1), range("h.0/gelu", 0, 0.1), copy("h.0/", 0.5, 1, 5000),
                   range("h.11", 1, 2), range("h.11/gelu", 1, 1.1), copy("h.11/", 1.5, 2, 5000)}),
            "copy to the host in h.*: 1 s, 10000\n");
}

TEST(L13_Exercises, AChainIsElementwiseKernelsOfOneSize) {
  RecordProperty("exercise", "13.2");
  const auto found = [](std::vector<TracedSpan> kernels) {
    return text_of(diagnose({{10, {}, std::move(kernels)}}));
  };
  const std::string in = "forward/h.2/";
  const auto chain = [&](int n, int64_t bytes = 1000) {
    std::vector<TracedSpan> kernels;
    for (int i = 0; i < n; ++i) kernels.push_back(wise(in + "scale", i == 1 ? 3 : 1, bytes));
    return kernels;
  };
  EXPECT_EQ(found(chain(3)), "") << "three kernels (a bias, an activation, a residual) are no chain";
  const std::string four = found(chain(4));
  EXPECT_EQ(four, "unfused kernels in forward/h.2: 3 s, 4\n")
      << "the four kernels take 1 + 3 + 1 + 1 s, and a fused kernel takes as long as the longest, 3 s"
      << usual_mistake(
             {{four.find("6 s") != std::string::npos,
               "a fused kernel still takes as long as the longest kernel of the chain; subtract its time"},
              {four.empty(), "kChain kernels are a chain, too"}});
  std::vector<TracedSpan> cut = chain(6);
  cut.insert(cut.begin() + 3, kernel(in + "linear", "contraction", 1));
  EXPECT_EQ(found(cut), "") << "a matrix product in between cuts the kernels into two groups of three";
  cut = chain(6);
  cut[3].bytes = 5000;
  EXPECT_EQ(found(cut), "")
      << "a kernel of a different size cuts the kernels into groups of three, one and two";
  cut[3].bytes = 2000;
  EXPECT_EQ(found(cut), "unfused kernels in forward/h.2: 5 s, 6\n")
      << "from half to twice the bytes count as the same size";
  cut[3].bytes = 500;
  EXPECT_EQ(found(cut), "unfused kernels in forward/h.2: 5 s, 6\n");
  cut = chain(4);
  for (const TracedSpan& k : chain(4, 9000)) cut.push_back(k);
  EXPECT_EQ(found(cut), "unfused kernels in forward/h.2: 6 s, 8\n")
      << "two chains, and each has its own longest kernel";
}

TEST(L13_Diagnosis, ChainsOfLayersAndTheirBackwardAreOneFinding) {
  const auto chain = [](std::vector<TracedSpan>& kernels, const std::string& in) {
    for (int i = 0; i < 4; ++i) kernels.push_back(wise(in + "/scale"));
    kernels.push_back(kernel(in + "/linear", "contraction", 1));
  };
  std::vector<TracedSpan> kernels;
  chain(kernels, "forward/h.0"), chain(kernels, "forward/h.1"), chain(kernels, "backward");
  EXPECT_EQ(text_of(diagnose({{10, {}, kernels}})), "unfused kernels in forward/h.*: 9 s, 12\n");
  kernels.clear();
  chain(kernels, "backward");
  EXPECT_EQ(text_of(diagnose({{10, {}, kernels}})), "unfused kernels in backward: 3 s, 4\n");
}

TEST(L13_Diagnosis, FindingsAreOfAStepAndTheCostliestComesFirst) {
  std::vector<TracedSpan> kernels(4, wise("forward/h.0/scale"));
  const TracedStep step{10, {range("data", 0, 1), range("copy to the host", 5, 7, "copy", 10'000)}, kernels};
  EXPECT_EQ(text_of(diagnose({step, step, step})),
            "unfused kernels in forward/h.0: 3 s, 4\ncopy to the host in : 2 s, 10000\ndata loading in data: "
            "1 s, 1\n");
}

}  // namespace
}  // namespace gradus
