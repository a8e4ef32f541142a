// The timelines of lesson 17's (b): what overlaps, and what does not.
#include "lessons/17_data_parallel/scaling.h"

#include <nlohmann/json.hpp>

#include "src/core/json.h"
#include "tests/folder_testing.h"

namespace gradus {
namespace {

struct L17_Scaling : FolderTest {};

TEST_F(L17_Scaling, TheTraceIsThatOfTheStepThatOverlaps) {
  fs::create_directories(path("build/plots"));
  fs::current_path(path());
  char program[] = "17_data_parallel";
  char* arguments[] = {program};
  timelines(Lesson(1, arguments, "17_data_parallel", "", 1));
  double backward_ends = 0, sums_begin = INFINITY;
  int64_t sums = 0;
  const Json trace = parse_json(read("build/plots/17_overlapped.json"));
  for (const Json& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X" || e.at("pid") != 0) continue;
    const double begin = e.at("ts").get<double>();
    if (e.at("name") == "backward")
      backward_ends = std::max(backward_ends, begin + e.at("dur").get<double>());
    if (e.at("tid") == 1) sums_begin = std::min(sums_begin, begin), ++sums;
  }
  EXPECT_GT(sums, 3) << "buckets of 25 MiB";
  EXPECT_LT(sums_begin, 0.75 * backward_ends) << "the first bucket is summed while the backward pass goes on";
  EXPECT_NE(read("build/plots/17_after.svg"), read("build/plots/17_overlapped.svg"));
}

}  // namespace
}  // namespace gradus
