// The device cuda, as far as it can be tested on every machine: what it says where it cannot be used. With a
// GPU, its memory too; the kernels are tested beside those of the other devices.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "src/memory/device.h"
#include "tests/devices.h"

namespace gradus {
namespace {

CudaFacts usable() {
  return {.built_for = "75 80 90a",
          .runtime = 12080,
          .driver = 12080,
          .error = "",
          .gpu = "NVIDIA H200",
          .sm = 90,
          .free = int64_t(100) << 30,
          .all = int64_t(140) << 30};
}

void expect_says(const CudaFacts& facts, std::initializer_list<const char*> parts) {
  const std::string problem = cuda_problem(facts);
  for (const char* part : parts)
    EXPECT_NE(problem.find(part), std::string::npos) << "no \"" << part << "\" in: " << problem;
}

TEST(L03_Cuda, NothingIsSaidWhereItCanBeUsed) {
  CudaFacts facts = usable();
  EXPECT_EQ(cuda_problem(facts), "");
  facts.driver = 12020;  // older than the toolkit, of the same major version: enough for code that was built
  EXPECT_EQ(cuda_problem(facts), "");
  facts.driver = 13010;
  EXPECT_EQ(cuda_problem(facts), "");
}

TEST(L03_Cuda, WhatIsMissingIsNamedWithARemedy) {
  expect_says({}, {"this build has no cuda", "make CUDA=1", "--device=emu"});
  CudaFacts facts = usable();
  facts.driver = 0, facts.gpu = "", facts.error = "CUDA driver version is insufficient";
  expect_says(facts, {"no NVIDIA driver", "nvidia-smi"});
  facts.driver = 11080;
  expect_says(facts, {"driver is made for CUDA 11.8", "this program for CUDA 12.8", "newer driver"});
  facts = usable();
  facts.gpu = "", facts.error = "no CUDA-capable device is detected";
  expect_says(facts, {"there is no GPU", "no CUDA-capable device is detected", "CUDA_VISIBLE_DEVICES"});
  facts = usable();
  facts.gpu = "Tesla V100", facts.sm = 70;
  expect_says(facts, {"the Tesla V100 is an sm_70", "SM=\"75 80 90a\"", "make CUDA=1 SM=70"});
  facts = usable();
  facts.gpu = "NVIDIA B200", facts.sm = 100, facts.driver = 12040;
  expect_says(facts, {"translated for the NVIDIA B200", "CUDA 12.4", "CUDA 12.8", "SM=100"});
  facts.driver = 12080;
  EXPECT_EQ(cuda_problem(facts), "");
  facts = usable();
  facts.error = "CUDA-capable device(s) is/are busy or unavailable";
  expect_says(facts, {"NVIDIA H200 does not start", "busy or unavailable"});
  facts = usable();
  facts.free = int64_t(20) << 20;
  expect_says(facts, {"has 20 MiB of its 143360 MiB free", "nvidia-smi"});
}

TEST(L03_Cuda, EverySentenceHasItsEdgeAndEndsWithEmu) {
  CudaFacts facts = usable();
  facts.free = int64_t(64) << 20;
  EXPECT_EQ(cuda_problem(facts), "") << "as much as the workspace and a few segments take";
  --facts.free;
  EXPECT_EQ(
      cuda_problem(facts),
      "device: cuda cannot be used: the NVIDIA H200 has 63 MiB of its 143360 MiB free; `nvidia-smi` shows "
      "which programs hold the rest. --device=emu runs the same kernels on the CPU");
  facts = usable();
  facts.gpu = "";
  expect_says(facts, {"there is no GPU (CUDA counts none)", ". --device=emu runs"});
  facts = usable();
  facts.sm = 75, facts.driver = 12000;
  EXPECT_EQ(cuda_problem(facts), "") << "nothing is to be translated";
  facts.driver = 11999;
  expect_says(facts, {"install a newer driver, or build with CUDA 11", ". --device=emu runs"});
  facts = usable();
  facts.sm = 103, facts.driver = 12070;
  expect_says(facts,
              {"the driver (CUDA 12.7) is too old to translate those of CUDA 12.8", ". --device=emu runs"});
  facts.built_for = "75 80 90a 100";
  EXPECT_EQ(cuda_problem(facts), "") << "100 runs on 103 as it was built";
}

TEST(L03_Cuda, CodeRunsOnTheGpusItWasBuiltForAndPtxOnNewerOnes) {
  const std::string list = "75 80 90a";
  EXPECT_EQ(runs_on(list, 70), Runs::No);
  for (const int sm : {75, 80, 86, 89, 90}) EXPECT_EQ(runs_on(list, sm), Runs::AsBuilt) << sm;
  for (const int sm : {100, 103, 120}) EXPECT_EQ(runs_on(list, sm), Runs::Translated) << sm;
  EXPECT_EQ(runs_on("80", 75), Runs::No);
  EXPECT_EQ(runs_on("86 75", 80), Runs::No) << "only the first of the list is PTX, and for newer GPUs";
  EXPECT_EQ(runs_on("90a", 100), Runs::No) << "90a is for 9.0 alone";
  EXPECT_EQ(runs_on("90a 80", 100), Runs::No);
  EXPECT_EQ(runs_on("100", 103), Runs::AsBuilt);
  EXPECT_EQ(runs_on("", 90), Runs::No);
}

TEST(L03_Cuda, EachOfAListRunsAsBuiltWhereItDoesAlone) {
  const std::vector<std::string> all = {"75", "80", "86", "89", "90", "90a", "100", "103", "103a", "120"};
  for (const std::string& a : all)
    for (const std::string& b : all)
      for (const int sm : {70, 75, 80, 86, 89, 90, 100, 103, 120, 121}) {
        const Runs first = runs_on(a, sm), second = runs_on(b, sm);
        const bool as_built = first == Runs::AsBuilt || second == Runs::AsBuilt;  // b's PTX is not there
        EXPECT_EQ(runs_on(a + " " + b, sm), as_built ? Runs::AsBuilt : first)
            << a << " " << b << " on " << sm;
      }
}

TEST(L03_Cuda, AutoIsCudaExactlyWhereItCanBeUsed) {
  const std::string problem = cuda_problem(cuda_facts());
  EXPECT_EQ(Device("auto").name(), std::string(problem.empty() ? "cuda" : "cpu"));
  if (problem.empty()) return;
  try {
    Device device("cuda");
    ADD_FAILURE() << "a device that cannot be used was made";
  } catch (const Error& e) {
    EXPECT_EQ(e.what(), problem);
  }
}

std::string said_by(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string said;
  for (int c; (c = fgetc(pipe)) != EOF;) said += char(c);
  pclose(pipe);
  return said;
}
// ptxas's own words about two kernels, of which one spills.
TEST(L03_Cuda, AKernelThatSpillsIsNamed) {
  const std::string log = ::testing::TempDir() + "x.o.names.log";
  const std::string of_one =
      "ptxas info    : Compiling entry function 'void gradus::cuda::(anonymous "
      "namespace)::a_kernel<(gradus::Write)0, "
      "float>(long, float*)' for 'sm_75'\n"
      "    96 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 40 registers, used 1 barriers, 128 bytes smem, 384 bytes cmem[0]\n";
  std::string of_other = of_one;
  of_other.replace(of_other.find("a_kernel"), 8, "b_kernel");
  const auto table = [&] { return said_by("awk -f tests/tools/ptxas.awk '" + log + "'; echo code $?"); };
  std::ofstream(log) << of_one << of_other;
  EXPECT_NE(table().find("2 kernels, 0 instances spill\ncode 0"), std::string::npos) << table();
  of_other.replace(of_other.find("0 bytes spill stores"), 1, "12");
  std::ofstream(log) << of_one << of_other;
  EXPECT_NE(table().find("1 instances spill\ncode 1"), std::string::npos) << table();
  EXPECT_NE(table().find("spills 12 bytes"), std::string::npos) << table();
  std::ofstream(log) << "";
  EXPECT_NE(table().find("code 1"), std::string::npos) << "nothing was compiled";
}

// Sizes around that of the buffer by way of which a GPU's copies go.
TEST(L03_Cuda, CopiesOfAnySizeArrive) {
  constexpr int64_t kMiB = 1 << 20;
  for (const char* name : devices_with_data()) {
    Device device(name);
    for (const int64_t bytes : {int64_t(0), int64_t(1), int64_t(7), 4 * kMiB - 1, 4 * kMiB, 9 * kMiB + 3}) {
      std::vector<uint8_t> sent(bytes), back(bytes);
      for (int64_t i = 0; i < bytes; ++i) sent[i] = uint8_t(i * 131 + i / 251);
      Block* block = device.allocator().allocate(bytes, Kind::Data, "bytes");
      device.copy_in(block->data(), sent.data(), bytes);
      device.copy_out(back.data(), block->data(), bytes);
      EXPECT_EQ(back == sent, true) << bytes << " bytes on " << name;
      device.allocator().free(block);
    }
  }
}

TEST(L03_Cuda, AGpuThatIsFullIsOutOfMemory) {
  const std::string problem = cuda_problem(cuda_facts());
  if (!problem.empty()) GTEST_SKIP() << problem;
  Device device("cuda");
  EXPECT_THROW(device.allocator().allocate(int64_t(1) << 50, Kind::Data, "a petabyte"), OutOfMemory);
  device.ctx();
  device.synchronize();
  EXPECT_NE(device.ctx().stream, nullptr);
}

}  // namespace
}  // namespace gradus
