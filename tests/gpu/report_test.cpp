// gpu-check's report, of a recorded example.
#include "tests/gpu/report.h"

#include "tests/folder_testing.h"

namespace gradus {
namespace {

using gpu_check::Json;

struct GpuReport : FolderTest {
  void SetUp() override {
    write("gpu/build/programs.result", "passed 300\n");
    write("gpu/build/programs.log", "compile 1 of 2\n");
    write("gpu/kernels/part_1_of_1.result", "failed 12 exit code 1\n");
    write("gpu/kernels/part_1_of_1.log",
          "[ RUN      ] A.B/cuda\nx_test.cpp:3: Failure\n  got 3\n[  FAILED  ] A.B/cuda\nmore\n");
    write("gpu/memcheck/part_1_of_4.result", "skipped 0 no compute-sanitizer\n");
    write("gpu/bench/kernels.result", "failed 300 it was ended after 300 s\n");
    write("gpu/bench/kernels.log",
          "a line of text\n"
          R"({"bench":"kernels","kernel":"add","dtype":"fp32","shape":"64","ms":0.5,"share_of_peak":0.75})"
          "\n"
          R"({"bench":"kernels","kernel":"scale","dtype":"fp32","shape":"64","ms":null,"share_of_peak":null})"
          "\n"
          R"({"bench":"kernels","kernel":"mul)");
    write("gpu/pytorch/steps.result", "passed 90\n");
    write("gpu/pytorch/steps.log", R"({"model":"gpt2","program":"gradus","ms_per_step":160}
{"model":"gpt2","program":"gradus","ms_per_step":170}
{"model":"gpt2","program":"pytorch-eager","ms_per_step":null}
| a | table |)");
    write("gpu/tests/nn_test.result", "");  // a full disk
    report = gpu_check::report_of(path("gpu"), "A GPU", "abc");
  }
  Json job(const std::string& stage) const {
    for (const Json& j : report["jobs"])
      if (j["stage"] == stage) return j;
    return {};
  }
  Json report;
};

TEST_F(GpuReport, SaysOfEachJobHowItEnded) {
  EXPECT_EQ(report["gpu"], "A GPU");
  EXPECT_EQ(report["commit"], "abc");
  EXPECT_EQ(report["jobs"].size(), 5u);
  EXPECT_EQ(job("build"),
            Json::parse(R"({"stage":"build","job":"programs","status":"passed","seconds":300})"));
  EXPECT_EQ(job("memcheck")["why"], "no compute-sanitizer");
  EXPECT_FALSE(job("memcheck").contains("seconds"));
}

TEST_F(GpuReport, ShowsTheFirstLinesOfAFailure) {
  EXPECT_EQ(job("kernels")["why"], "exit code 1");
  EXPECT_EQ(job("kernels")["lines"], (Json{"x_test.cpp:3: Failure", "[  FAILED  ] A.B/cuda"}));
  const std::vector<std::string> log{"1", "2", "3", "4", "5", "6"};
  EXPECT_EQ(gpu_check::lines_of_failure(log), (std::vector<std::string>{"2", "3", "4", "5", "6"}));
  EXPECT_TRUE(gpu_check::lines_of_failure({}).empty());
}

TEST_F(GpuReport, WhatWasNotMeasuredIsAbsent) {
  ASSERT_EQ(report["kernels"].size(), 1u) << "also of a job that did not end";
  EXPECT_EQ(report["kernels"][0]["share_of_peak"], 0.75);
  EXPECT_EQ(report["ms_per_step"], Json::parse(R"({"gpt2, gradus": 165.0})"));
  const Json nothing = gpu_check::report_of(path("missing"), "A GPU", "abc");
  EXPECT_FALSE(nothing.contains("kernels"));
  EXPECT_FALSE(nothing.contains("ms_per_step"));
  EXPECT_TRUE(nothing["jobs"].empty());
}

TEST_F(GpuReport, ThePageHasAllOfIt) {
  const std::string page = gpu_check::page_of(report);
  for (const char* part :
       {"# A GPU\n", "| kernels | 0 | 1 | 0 |  |", "| memcheck | 0 | 0 | 1 | no compute-sanitizer |",
        "kernels/part_1_of_1 failed: exit code 1", "x_test.cpp:3: Failure", "| gpt2, gradus | 165 |",
        "| add | fp32 | 64 | 0.5 | 0.75 |"})
    EXPECT_NE(page.find(part), std::string::npos) << part << " is not in:\n" << page;
}

}  // namespace
}  // namespace gradus
