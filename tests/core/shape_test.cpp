// Shapes, the nearest word, and timing.
#include "src/core/shape.h"

#include <gtest/gtest.h>

#include <thread>

#include "src/core/nearest.h"
#include "src/memory/device_timing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TEST(L01_CoreShape, SizesAreFoundFromBothEnds) {
  const Shape s{2, 3, 5};
  EXPECT_EQ(s.rank(), 3);
  EXPECT_EQ(s[0], 2);
  EXPECT_EQ(s[1], 3);
  EXPECT_EQ(s[2], 5);
  EXPECT_EQ(s[-1], 5);
  EXPECT_EQ(s[-2], 3);
  EXPECT_EQ(s[-3], 2);
  EXPECT_EQ(refusal([&] { s[3]; }), "shape: dimension 3 of [2,3,5] does not exist");
  EXPECT_EQ(refusal([&] { s[-4]; }), "shape: dimension -4 of [2,3,5] does not exist");
  EXPECT_NE(refusal([] { Shape()[0]; }), "");
  EXPECT_NE(refusal([] { Shape()[-1]; }), "");
  EXPECT_EQ(std::vector<int64_t>(s.begin(), s.end()), (std::vector<int64_t>{2, 3, 5}));
}

TEST(L01_CoreShape, NumelIsTheProductOrRefused) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ((Shape{7}.numel()), 7);
  EXPECT_EQ((Shape{2, 3, 5, 7, 11}.numel()), 2310);
  EXPECT_EQ((Shape{4, 0, 3}.numel()), 0);
  EXPECT_EQ((Shape{int64_t(1) << 40, int64_t(1) << 40, 0}.numel()), 0) << "0, for any other sizes";
  const int64_t two31 = int64_t(1) << 31;
  EXPECT_EQ((Shape{two31, two31}.numel()), int64_t(1) << 62);
  EXPECT_EQ((Shape{INT64_MAX, 1}.numel()), INT64_MAX);
  EXPECT_NE(refusal([&] {
              Shape{two31, two31, 2}.numel();
            }).find("[2147483648,2147483648,2] has more elements"),
            std::string::npos);
  EXPECT_NE(refusal([&] { Shape{INT64_MAX, 2}.numel(); }), "");
}

TEST(L01_CoreShape, AtMostFiveSizesNoneNegative) {
  EXPECT_EQ((Shape{1, 2, 3, 4, 5}.rank()), 5);
  EXPECT_NE(refusal([] { Shape{1, 2, 3, 4, 5, 6}; }).find("6 dimensions; at most 5"), std::string::npos);
  EXPECT_NE(refusal([] { Shape{3, -1}; }).find("size -1 is negative"), std::string::npos);
  Shape s;
  for (int i = 1; i <= 5; ++i) s.push_back(i);
  EXPECT_NE(refusal([&] { s.push_back(6); }).find("more than 5 dimensions"), std::string::npos);
  EXPECT_EQ(s, (Shape{1, 2, 3, 4, 5})) << "a rejected size changes the shape";
}

TEST(L01_CoreShape, WithLastReplacesNothingElse) {
  const Shape s{2, 3, 5};
  EXPECT_EQ(s.with_last(7), (Shape{2, 3, 7}));
  EXPECT_EQ(s, (Shape{2, 3, 5}));
  EXPECT_EQ(Shape{4}.with_last(0), Shape{0});
  EXPECT_NE(refusal([] { Shape().with_last(1); }).find("a scalar has no last dimension"), std::string::npos);
  EXPECT_NE(refusal([&] { s.with_last(-1); }).find("size -1 is negative"), std::string::npos);
}

TEST(L01_CoreShape, EqualIsTheSameSizesInTheSameOrder) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  for (const Shape& other :
       {Shape{3, 2}, Shape{2, 4}, Shape{2, 3, 1}, Shape{2}, Shape{6}, Shape{}, Shape{1, 2, 3}})
    EXPECT_FALSE((Shape{2, 3} == other)) << other;
  EXPECT_EQ(Shape().text(), "[]");
  EXPECT_EQ(Shape{7}.text(), "[7]");
  EXPECT_EQ((Shape{8, 64, 128}.text()), "[8,64,128]");
}

TEST(L01_CoreNearest, DistancesAreLevenshteins) {
  struct Case {
    const char *a, *b;
    size_t letters;
  };
  for (const Case& c :
       {Case{"kitten", "sitting", 3}, Case{"flaw", "lawn", 2}, Case{"", "abc", 3}, Case{"", "", 0},
        Case{"abc", "abc", 0}, Case{"abc", "acb", 2}, Case{"abc", "abd", 1}, Case{"abc", "xabc", 1},
        Case{"abc", "ab", 1}, Case{"saturday", "sunday", 3}, Case{"aaaa", "a", 3}}) {
    EXPECT_EQ(edit_distance(c.a, c.b), c.letters) << c.a << " " << c.b;
    EXPECT_EQ(edit_distance(c.b, c.a), c.letters) << c.b << " " << c.a;
  }
}

TEST(L01_CoreNearest, OfEquallyNearWordsTheFirst) {
  EXPECT_EQ(nearest("stepz", {"seed", "steps", "json"}), "steps");
  EXPECT_EQ(nearest("x", {"ab", "b", "a"}), "b");
  EXPECT_EQ(nearest("jso", {"steps", "seed", "json"}), "json") << "the last of them";
  EXPECT_EQ(nearest("seed", {"seeds", "seed"}), "seed");
  EXPECT_EQ(nearest("anything", {"one"}), "one");
}

TEST(L01_CoreTiming, MedianAndMinimumOfWhatWasMeasured) {
  const Timing t = summarize({5, 1, 9, 3, 7});
  EXPECT_EQ(t.median, 5);
  EXPECT_EQ(t.min, 1);
  EXPECT_EQ(t.repeats, 5);
  EXPECT_EQ(summarize({4}).median, 4);
  const Timing even = summarize({4, 1, 3, 2});
  EXPECT_GE(even.median, 2);
  EXPECT_LE(even.median, 3);
  const Timing none = summarize({});
  EXPECT_EQ(none.repeats, 0);
  EXPECT_EQ(none.median, 0);
}

TEST(L01_CoreTiming, OneCallToWarmUpThenUntilBothAreReached) {
  int calls = 0;
  const Timing seven = measure([&] { ++calls; }, 7, 0);
  EXPECT_EQ(seven.repeats, 7);
  EXPECT_EQ(calls, 8) << "one call warms up";
  calls = 0;
  const Timing first_is_slow =
      measure([&] { std::this_thread::sleep_for(std::chrono::milliseconds(calls++ ? 0 : 300)); }, 3, 0);
  EXPECT_LT(first_is_slow.median, 0.25) << "the first call must not count";
  calls = 0;
  const Timing long_enough = measure(
      [&] {
        ++calls;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      },
      2, 0.05);
  EXPECT_EQ(long_enough.repeats, calls - 1);
  EXPECT_GE(long_enough.repeats, 2);
  EXPECT_GE(long_enough.min, 0.005);
  EXPECT_LE(long_enough.min, long_enough.median);
}

TEST(L01_CoreTiming, ByDefaultFiveCallsAndATwentiethOfASecond) {
  const auto sleep = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  EXPECT_EQ(measure([&] { sleep(15); }).repeats, 5);
  const double start = seconds_now();
  const Timing short_ones = measure([&] { sleep(1); });
  EXPECT_GE(seconds_now() - start, 0.05);
  EXPECT_GE(short_ones.repeats, 5);
  EXPECT_LE(short_ones.repeats, 50);
}

TEST(L01_CoreTiming, OfADeviceTheTimeOfOneCall) {
  Device device("cpu");
  const auto busy = [] {
    for (const double start = seconds_now(); seconds_now() - start < 100e-6;) {
    }
  };
  const Timing t = measure(device, busy);
  EXPECT_GE(t.min, 100e-6);
  EXPECT_LT(t.min, 500e-6) << "a sample is many calls of 100 us each";
  EXPECT_LE(t.min, t.median);
}

}  // namespace
}  // namespace gradus
