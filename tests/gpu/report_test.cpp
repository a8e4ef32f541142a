// gpu-check's report on an example.
#include "tests/gpu/report.h"

#include "tests/folder_testing.h"

namespace gradus {
namespace {

using gpu_check::Json;

// In the format of ncu's documentation: three launches of two kernels, a launch without its time, and one
// whose line was cut off.
constexpr const char* kCsv = R"csv(==PROF== Connected to process 1
"ID","Process ID","Kernel Name","Grid Size","Metric Name","Metric Unit","Metric Value"
"0","1","map_kernel","(256, 1, 1)","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","90"
"0","1","map_kernel","(256, 1, 1)","gpu__time_duration.sum","ns","1,000,000"
"0","1","map_kernel","(256, 1, 1)","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","20"
"1","1","map_kernel","(256, 1, 1)","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","50"
"1","1","map_kernel","(256, 1, 1)","gpu__time_duration.sum","ns","3,000,000"
"2","1","sm90_gemm","(256, 1, 1)","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","n/a"
"2","1","sm90_gemm","(256, 1, 1)","gpu__time_duration.sum","ns","5,500,000"
"3","1","untimed","(256, 1, 1)","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","5"
"4","1","lost","(9, 1, 1)","gpu__ti)csv";

struct GpuReport : FolderTest {
  void SetUp() override {
    write("gpu/build/programs.result", "passed 300\n");
    write("gpu/build/programs.log", "compile 1 of 2\n");
    write("gpu/kernels/part_1_of_1.result", "failed 12 exit code 1\n");
    write("gpu/kernels/part_1_of_1.log",
          "[ RUN      ] A.NoError: /cuda\n[       OK ] A.NoError: /cuda\nx_test.cpp:3: Failure\n  got 3\n[  "
          "FAILED  ] A.B/cuda\nmore\n");
    write("gpu/memcheck/part_1_of_4.result", "skipped 0 no compute-sanitizer\n");
    write("gpu/bench/kernels.result", "failed 300 it was ended after 300 s\n");
    write(
        "gpu/bench/kernels.log",
        "a line of text\n"
        R"({"kernel":"add","dtype":"fp32","shape":"64","ms":0.5,"peak":"copy","measured_peak":3000.0,"share_of_peak":0.75})"
        "\n"
        R"({"kernel":"matmul","dtype":"bf16","shape":"NN 64","ms":2.5,"peak":"products","measured_peak":700000.0,"share_of_peak":0.5})"
        "\n"
        R"({"kernel":"scale","dtype":"fp32","shape":"64","ms":null,"peak":"copy","measured_peak":2000.0,"share_of_peak":null})"
        "\n"
        R"({"bench":"kernels","kernel":"mul)");
    write("gpu/pytorch/steps.result", "passed 90\n");
    write("gpu/pytorch/steps.log", R"({"model":"gpt2","program":"gradus","ms_per_step":160}
{"model":"gpt2","program":"gradus","ms_per_step":170}
{"model":"gpt2","program":"pytorch-eager","ms_per_step":null}
| a | table |)");
    write("gpu/tests/nn_test.result", "");  // a full disk
    write("gpu/counters/step.result", "passed 50\n");
    write("gpu/counters/step.log", kCsv);
    write("gpu/machine.txt", "There are 8 GPUs; one is used.\n");
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
  EXPECT_EQ(report["jobs"].size(), 6u);
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
  ASSERT_EQ(report["kernels"].size(), 2u) << "kernels of a job that did not end count, too";
  EXPECT_EQ(report["kernels"][0]["share_of_peak"], 0.75);
  EXPECT_EQ(report["compared"], Json::parse(R"([{"model":"gpt2","unit":"ms_per_step","gradus":165.0}])"));
  const Json nothing = gpu_check::report_of(path("missing"), "A GPU", "abc");
  for (const char* part : {"kernels", "compared", "peaks", "longest_kernels"})
    EXPECT_FALSE(nothing.contains(part)) << part;
  EXPECT_TRUE(nothing["jobs"].empty());
}

TEST_F(GpuReport, PeaksAreTheMediansOfThoseMeasured) {
  EXPECT_EQ(report["peaks"], Json::parse(R"({"copy, GB/s":3000.0,"products bf16, GFLOP/s":700000.0})"));
}

TEST_F(GpuReport, SumsTheLaunchesOfAKernel) {
  ASSERT_EQ(report["longest_kernels"].size(), 2u);
  const Json &gemm = report["longest_kernels"][0], &map = report["longest_kernels"][1];
  EXPECT_EQ(gemm["kernel"], "sm90_gemm");
  EXPECT_FALSE(gemm.contains("share_of_memory")) << "ncu could not measure it";
  EXPECT_EQ(map["kernel"], "map_kernel");
  EXPECT_EQ(map["launches"], 2);
  EXPECT_DOUBLE_EQ(map["ms"], 4);
  EXPECT_DOUBLE_EQ(map["share_of_memory"], (0.9 * 1 + 0.5 * 3) / 4);
  EXPECT_DOUBLE_EQ(map["share_of_arithmetic"], 0.2);
}

TEST_F(GpuReport, ThePageHasAllOfIt) {
  const std::string page = gpu_check::page_of(report);
  for (const char* part :
       {"# A GPU\n", "Commit abc. There are 8 GPUs; one is used.\n", "| kernels | 0 | 1 | 0 |  |",
        "| memcheck | 0 | 0 | 1 | no compute-sanitizer |", "kernels/part_1_of_1 failed: exit code 1",
        "x_test.cpp:3: Failure", "| gpt2 | ms_per_step | 165 |  |  |\n", "copy, GB/s: 3000\n",
        "| add | fp32 | 64 | 0.5 | 0.75 |\n", "| sm90_gemm | 1 | 5.5 |  |  |\n"})
    EXPECT_NE(page.find(part), std::string::npos) << part << " is not in:\n" << page;
}

}  // namespace
}  // namespace gradus
