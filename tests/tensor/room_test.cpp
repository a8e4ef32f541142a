// The basis of paging: the allocator asks for room, and a storage may be dropped for a while.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/tensor/tensor.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kMiB = int64_t(1) << 20;

struct L12_Room : ::testing::TestWithParam<const char*> {};
const auto kName = [](const auto& info) { return std::string(info.param); };
INSTANTIATE_TEST_SUITE_P(Devices, L12_Room, ::testing::ValuesIn(devices_with_data()), kName);
INSTANTIATE_TEST_SUITE_P(NoData, L12_Room, ::testing::Values("meta"), kName);

// make_room is called only when there is no room, after the cache was emptied, and repeatedly.
TEST_P(L12_Room, RoomIsAskedForUntilItIsThereOrNothingMoreIsFreed) {
  Device device(GetParam(), 8 * kMiB);
  std::vector<Tensor> held;
  const auto tensor = [&](int64_t bytes) { return Tensor(device, {bytes}, DType::U8, Kind::Other, "x"); };
  int asked = 0;
  device.allocator().make_room.push_back([&] {
    ++asked;
    if (held.empty()) return false;
    held.pop_back();
    return true;
  });
  for (int i = 0; i < 7; ++i) held.push_back(tensor(kMiB));
  EXPECT_EQ(asked, 0) << "3 segments hold two each, and one block is next to the step scalars";
  EXPECT_THROW(tensor(9 * kMiB), OutOfMemory);
  EXPECT_EQ(asked, 7 + 1) << "the last call learns that nothing is left to free";
  for (int i = 0; i < 7; ++i) held.push_back(tensor(kMiB));
  std::reverse(held.begin(), held.end());  // the block next to the scalars goes last: two free a segment
  const Tensor one = tensor(kMiB);
  EXPECT_EQ(asked, 9);
  EXPECT_EQ(held.size(), 6u);
  device.allocator().set_budget(8 * kMiB + 20 * kMiB);
  tensor(2 * kMiB);
  device.allocator().set_budget(9 * kMiB + 20 * kMiB);
  EXPECT_EQ(device.meter().reserved(), 28 * kMiB) << "20 of them in the cache";
  const Tensor two = tensor(kMiB), three = tensor(kMiB - 4096), more[2] = {tensor(kMiB), tensor(kMiB)};
  EXPECT_EQ(asked, 9);
  device.allocator().make_room.clear();
}

TEST_P(L12_Room, StorageThatIsEmptyIsRefusedByNameUntilItIsFilledWithAsManyBytes) {
  Device device(GetParam());
  const auto tensor = [&](int64_t rows) { return Tensor(device, {rows, 8}, DType::F32, Kind::Data, "made"); };
  Tensor t = tensor(16);
  const uint32_t version = t.storage().version;
  Tensor part = t.narrow(3, 2);
  t.storage().drop("it is on holiday");
  EXPECT_TRUE(t.storage().dropped() && part.storage().dropped());
  EXPECT_EQ(device.meter().now()[Kind::Data], 0);
  for (const auto& read :
       std::vector<std::function<void()>>{[&] { t.in(); }, [&] { part.set(); }, [&] { t.storage().kind(); }})
    expect_refused("tensor 'made' has no memory: it is on holiday", read);
  EXPECT_EQ(t.storage().bytes(), 512);
  EXPECT_EQ(t.storage().name(), "made");
  for (const int64_t rows : {8, 15, 17})
    expect_refused("'made' had 512 bytes, recomputed it has " + std::to_string(rows * 32),
                   [&] { t.storage().refill(tensor(rows).storage()); });
  EXPECT_TRUE(t.storage().dropped());
  t.storage().on_read = [&] { t.storage().refill(tensor(16).storage()); };
  const void* data = t.in().p;
  EXPECT_EQ(static_cast<const float*>(data) + 3 * 8, part.in().p);
  EXPECT_EQ(device.meter().now()[Kind::Data], 512) << "it has the memory that on_read allocated";
  EXPECT_EQ(t.storage().name(), "made");
  EXPECT_EQ(t.storage().version, version + 1) << "only part.set() is a write";
  t.storage().drop("it left again");
  t.storage().on_read = [] {};
  expect_refused("tensor 'made' has no memory: it left again", [&] { part.in(); });
}

}  // namespace
}  // namespace gradus
