// The sources of memory: pages of the host, addresses of meta; and the memory that a device allocates itself.
#include "src/memory/source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "src/memory/device.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kMiB = 1 << 20, kPage = 2 * kMiB;

// Tests write to an allocation through this function, or compilers may remove the writes.
void touch(void* p, int64_t bytes, char value) { std::memset(p, value, size_t(bytes)); }
char& at(void* p, int64_t offset) { return static_cast<char*>(p)[offset]; }

TEST(L01_HostSource, MemoryIsAlignedWholeAndGivenBack) {
  const std::unique_ptr<Source> source = host_source();
  EXPECT_TRUE(source->on_host());
  EXPECT_TRUE(source->has_data());
  EXPECT_EQ(source->stream(), nullptr);
  std::vector<void*> pieces;
  for (const int64_t pages : {1, 1, 3, 10}) {
    void* const p = source->acquire(pages * kPage);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % kPage, 0u) << "the address must suit huge pages";
    touch(p, pages * kPage, 'x');  // to the last byte
    pieces.push_back(p);
  }
  EXPECT_EQ(at(pieces[2], 3 * kPage - 1), 'x');
  int64_t pages[] = {1, 1, 3, 10};
  for (int i = 0; i < 4; ++i) source->release(pieces[size_t(i)], pages[i] * kPage);
  EXPECT_EQ(source->acquire(int64_t(1) << 60), nullptr) << "no machine has this much memory";
  EXPECT_EQ(source->reserve(int64_t(1) << 60), nullptr);
}

TEST(L01_HostSource, OccupiedIsTheMemoryOfThisProcess) {
  const std::unique_ptr<Source> source = host_source();
  const int64_t before = source->occupied(), bytes = 128 * kMiB;
  EXPECT_GT(before, kMiB);
  void* const p = source->acquire(bytes);
  EXPECT_LT(source->occupied(), before + bytes / 2) << "untouched pages must not count";
  touch(p, bytes, 1);
  const int64_t touched = source->occupied();
  EXPECT_GE(touched, before + bytes * 9 / 10);
  EXPECT_LE(touched, before + bytes * 11 / 10);
  source->release(p, bytes);
  EXPECT_LE(source->occupied(), touched - bytes * 9 / 10);
}

int64_t addresses_of_this_process() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}
TEST(L01_HostSource, AddressesGoBackToo) {
  const std::unique_ptr<Source> source = host_source();
  const int64_t before = addresses_of_this_process();
  for (int i = 0; i < 50; ++i) {
    source->release(source->acquire(kPage), kPage);
    source->unreserve(source->reserve(3 * kPage), 3 * kPage);
  }
  EXPECT_LT(addresses_of_this_process(), before + 10 * kPage) << "alignment must not keep addresses";
}

TEST(L05_HostSource, PagesComeAndGoBehindTheirAddresses) {
  const std::unique_ptr<Source> source = host_source();
  void* const base = source->reserve(4 * kPage);
  ASSERT_NE(base, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(base) % kPage, 0u);
  ASSERT_TRUE(source->map(&at(base, kPage), 2 * kPage));
  touch(&at(base, kPage), 2 * kPage, 'a');
  ASSERT_TRUE(source->map(base, kPage)) << "mapping the next page";
  touch(base, kPage, 'b');
  EXPECT_EQ(at(base, kPage), 'a');
  EXPECT_EQ(at(base, 3 * kPage - 1), 'a');
  const int64_t before = source->occupied();
  source->unmap(&at(base, kPage), 2 * kPage);
  EXPECT_LE(source->occupied(), before - kPage) << "the memory was not released";
  EXPECT_EQ(at(base, kPage - 1), 'b') << "the next page must stay";
  EXPECT_DEATH(at(base, kPage) = 1, "");
  ASSERT_TRUE(source->map(&at(base, kPage), 2 * kPage));
  EXPECT_EQ(at(base, 3 * kPage - 1), 0) << "a page that is mapped again must be empty";
  source->unreserve(base, 4 * kPage);
}

TEST(L01_HostSource, CopiesAreOfSoManyBytes) {
  const std::unique_ptr<Source> source = host_source();
  void* const p = source->acquire(kPage);
  touch(p, 16, '-');
  source->copy_in(&at(p, 3), "abcdefgh", 5);
  EXPECT_EQ(std::string(&at(p, 0), 10), "---abcde--");
  char out[8] = "zzzzzzz";
  source->copy_out(out, &at(p, 4), 3);
  EXPECT_STREQ(out, "bcdzzzz");
  source->copy_in(nullptr, nullptr, 0);
  source->copy_out(nullptr, nullptr, 0);
  source->synchronize();
  source->release(p, kPage);
}

TEST(L03_MetaSource, AddressesThatNothingIsBehind) {
  const std::unique_ptr<Source> source = meta_source();
  EXPECT_FALSE(source->has_data());
  EXPECT_FALSE(source->on_host());
  EXPECT_EQ(source->occupied(), -1);
  char* end = nullptr;
  for (const int64_t bytes : {kPage, 5 * kPage, int64_t(1) << 46, kPage}) {
    char* const p = static_cast<char*>(source->acquire(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
    EXPECT_GE(p, end) << "allocations must not overlap";
    end = p + bytes;
    source->copy_in(p, "x", 1);
    unsigned char out[6] = {1, 1, 1, 1, 1, 1};
    source->copy_out(out + 1, p, 4);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(out[i], i >= 1 && i < 5 ? 0xFF : 1) << "all ones, " << i;
    source->copy_out(nullptr, p, 0);
    source->release(p, bytes);
  }
  void* const reserved = source->reserve(int64_t(1) << 40);
  EXPECT_GE(static_cast<char*>(reserved), end);
  EXPECT_GE(static_cast<char*>(source->reserve(kPage)), static_cast<char*>(reserved) + (int64_t(1) << 40));
  EXPECT_TRUE(source->map(reserved, kPage));
  source->unmap(reserved, kPage);
  EXPECT_EQ(source->reserve((int64_t(1) << 47) + kPage), nullptr) << "no program has this many addresses";
}

TEST(L02_Device, AScalarIsWrittenAlone) {
  std::vector<const char*> names = devices_with_data();
  names.push_back("meta");
  for (const char* name : names) {
    Device device(name);
    device.set(&StepScalars::loss_scale, 0.25f);
    device.set(&StepScalars::overflows, 3);
    device.set(&StepScalars::good_updates, (int64_t(1) << 40) + 7);
    device.set(&StepScalars::loss_scale, 0.5f);
    const StepScalars s = device.scalars();
    EXPECT_EQ(s.loss_scale, 0.5f) << name;
    EXPECT_EQ(s.overflows, 3) << name;
    EXPECT_EQ(s.growth_interval, 0) << name << ": it was not written";
    EXPECT_EQ(s.step, 1) << name << ": the number of the first attempt";
    EXPECT_EQ(s.good_updates, (int64_t(1) << 40) + 7) << name;
    EXPECT_EQ(device.host_scalars().good_updates, s.good_updates) << name;
    if (device.has_data()) {
      StepScalars seen;  // the Ctx of a kernel points to the same memory
      device.copy_out(&seen, device.ctx().scalars, sizeof seen);
      EXPECT_EQ(seen.good_updates, s.good_updates) << name;
      EXPECT_EQ(seen.loss_scale, 0.5f) << name;
    }
    EXPECT_EQ(device.ctx().scratch, nullptr) << name;
    EXPECT_EQ(device.meter().now()[Kind::Workspace], kWorkspaceBytes) << name;
  }
}

TEST(L01_Device, ItsOwnMemoryHasNamesAndOnlyMetaKeepsATrace) {
  for (const char* name : {"cpu", "emu", "meta"}) {
    Device device(name);
    EXPECT_EQ(device.meter().now()[Kind::Workspace], 0) << "the workspace is allocated at its first use";
    void* const workspace = device.ctx().workspace;
    EXPECT_EQ(device.ctx().workspace, workspace);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace) % 64, 0u);
    EXPECT_EQ(device.host_scalars().loss_scale, 1);
    std::string seen;
    for (const auto& [serial, segment] : device.allocator().segments())
      for (const Block* b = segment.first; b; b = b->next)
        if (!b->free)
          seen += b->name + " " + name_of(b->kind) + " " + std::to_string(b->requested) + " " +
                  b->shape.text() + ", ";
    const std::string bytes = std::to_string(kWorkspaceBytes);
    EXPECT_EQ(seen, "step scalars other " + std::to_string(sizeof(StepScalars)) +
                        " [], workspace workspace " + bytes + " [" + bytes + "], ")
        << name;
    device.meter().count({.op_class = OpClass::Contraction, .flops = 100, .bytes = 10});
    EXPECT_EQ(device.meter().trace().size(), device.has_data() ? 0u : 1u) << name;
    EXPECT_FALSE(device.meter().keeps_times()) << name;
    device.synchronize();
  }
}

TEST(L01_Device, NamesDataAndBudget) {
  EXPECT_EQ(device_names(), (std::vector<std::string>{"auto", "cpu", "cuda", "emu", "meta"}));
  for (const char* name : {"cpu", "emu", "meta"}) {
    Device device(name, 100 * kMiB);
    EXPECT_STREQ(device.name(), name);
    EXPECT_EQ(device.has_data(), std::string(name) != "meta");
    EXPECT_EQ(device.allocator().budget(), 100 * kMiB);
    EXPECT_THROW(device.allocator().allocate(101 * kMiB, Kind::Weight, "w"), OutOfMemory) << name;
  }
  EXPECT_THROW(Device("cpu", kMiB), OutOfMemory) << "the step scalars do not fit";
  expect_refused("\"gpu9\" is unknown; there are auto, cpu", [] { Device("gpu9"); });
  Device device("cpu"), other("cpu");
  EXPECT_EQ(device.allocator().budget(), 0);
  Backend table = device.backend();
  table.name = "mine";
  device.use(table);
  EXPECT_STREQ(device.name(), "mine");
  EXPECT_STREQ(other.name(), "cpu") << "a table is set for one device only";
}

// On a GPU the second queue copies from pinned memory.
TEST(L14_CopyQueue, CopiesAreThereAfterWaiting) {
  for (const char* name : devices_with_data()) {
    Device device(name), host("cpu");
    Source& source = device.allocator().source();
    constexpr int64_t kBytes = 300'000;
    Block *const from = host.allocator().allocate(kBytes, Kind::Data, "from"),
                 *const to = device.allocator().allocate(2 * kBytes, Kind::Data, "to");
    source.pin(from->data(), kBytes);
    const std::unique_ptr<CopyQueue> queue = source.copy_queue();
    std::vector<char> back(2 * kBytes);
    for (char value = 1; value < 6; ++value) {
      touch(from->data(), kBytes, value);
      queue->copy_in(to->data(), from->data(), kBytes);
      queue->copy_in(to->data() + kBytes, from->data(), kBytes);
      queue->wait();
      touch(from->data(), kBytes, 0);
      device.copy_out(back.data(), to->data(), 2 * kBytes);
      EXPECT_EQ(back, std::vector<char>(2 * kBytes, value)) << name;
    }
    source.unpin(from->data());
    host.allocator().free(from), device.allocator().free(to);
  }
}

}  // namespace
}  // namespace gradus
