// The device cuda, as far as it can be tested on every machine: its message where it cannot be used. With a
// GPU also its memory; its kernels are tested with those of the other devices.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "src/memory/device.h"
#include "tests/devices.h"

namespace gradus {
namespace {

TEST(L03_Cuda, WhereItCannotBeUsedASentenceSaysWhyAndWhatToDo) {
  const std::string problem = cuda_problem();
  if (problem.empty()) GTEST_SKIP() << "cuda can be used here";
#ifdef GRADUS_CUDA
  const char* parts[] = {"CUDA says: ", "; `nvidia-smi` must list a GPU and a driver for CUDA ", "(SM=\""};
#else
  const char* parts[] = {"this build has no cuda", "make CUDA=1"};
#endif
  for (const char* part : parts)
    EXPECT_NE(problem.find(part), std::string::npos) << part << " in " << problem;
  EXPECT_TRUE(problem.starts_with("device: cuda cannot be used: ")) << problem;
  EXPECT_TRUE(problem.ends_with(". --device=emu runs the same kernels on the CPU")) << problem;
}

TEST(L03_Cuda, AutoIsCudaExactlyWhereItCanBeUsed) {
  const std::string problem = cuda_problem();
  EXPECT_EQ(Device("auto").name(), std::string(problem.empty() ? "cuda" : "cpu"));
  if (problem.empty()) return;
  try {
    Device device("cuda");
    ADD_FAILURE() << "a device that cannot be used was created";
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
// The output of ptxas for two kernels, one of which spills.
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

// Sizes around that of the pinned buffer through which a GPU's copies go.
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
  const std::string problem = cuda_problem();
  if (!problem.empty()) GTEST_SKIP() << problem;
  Device device("cuda");
  EXPECT_THROW(device.allocator().allocate(int64_t(1) << 50, Kind::Data, "a petabyte"), OutOfMemory);
  device.ctx();
  device.synchronize();
  EXPECT_NE(device.ctx().stream, nullptr);
}

}  // namespace
}  // namespace gradus
