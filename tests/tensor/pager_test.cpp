// Tensors that move to the host when the device has no room: which ones move, that they return with the same
// bytes, that every byte is counted; and dropped storage.
#include "src/tensor/pager.h"

#include <gtest/gtest.h>

#include "src/core/rng.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kMiB = int64_t(1) << 20;

std::vector<char> noise(int64_t bytes, uint64_t stream) {  // includes NaNs of every kind
  Rng rng(12, stream);
  std::vector<uint64_t> words(bytes / 8);
  for (uint64_t& word : words) word = rng.bits64();
  const char* const first = reinterpret_cast<const char*>(words.data());
  return {first, first + bytes};
}

// A device with room for `rooms` groups. A group is two tensors of 1 MiB, for which the allocator gets a
// segment of 2 MiB, so one group that leaves makes room for exactly one.
struct Paged {
  Paged(const char* name, int64_t rooms, size_t count, bool expandable = false)
      : device(name, 2 * kMiB * (1 + rooms)), host(device.has_data() ? "cpu" : "meta") {
    taken = {device_tensor(kMiB), device_tensor(kMiB - round_up(sizeof(StepScalars), 512))};
    EXPECT_EQ(device.meter().reserved(), 2 * kMiB) << "the segment of the step scalars is full";
    device.allocator().set_expandable(expandable);
    pager.emplace(device, host);
    for (size_t g = 0; g < count; ++g) {
      pager->done();
      add("first", Kind::Optimizer, DType(g % 2 ? DType::U8 : DType::F32), g);
      add("second", Kind::Weight, DType(g % 2 ? DType::I32 : DType::BF16), g);
    }
    pager->done();
  }
  Tensor device_tensor(int64_t bytes) { return Tensor(device, {bytes}, DType::U8, Kind::Other, "other"); }
  void add(const std::string& name, Kind kind, DType t, size_t g) {
    Tensor tensor(device, {4, kMiB / 4 / size_of(t)}, t, kind, std::to_string(g) + "." + name);
    write(tensor, noise(kMiB, tensors.size()));
    pager->add(tensor, g);
    tensors.push_back(tensor);
  }
  void write(Tensor t, const std::vector<char>& bytes) {
    if (device.has_data()) device.copy_in(t.set().p, bytes.data(), t.bytes());
  }
  // On meta there are no bytes to compare, but the tensor is read there, too.
  bool holds(const Tensor& t, const std::vector<char>& want) {
    std::vector<char> bytes(want.size());
    device.copy_out(bytes.data(), t.in().p, t.bytes());
    return !device.has_data() || bytes == want;
  }
  bool intact() {
    bool all = true;
    for (size_t i = 0; i < tensors.size(); ++i) all = holds(tensors[i], noise(kMiB, i)) && all;
    return all;
  }
  std::string on_device() const {  // "02": the groups 0 and 2
    std::string there;
    for (size_t g = 0; g < pager->groups(); ++g) {
      EXPECT_EQ(tensors[2 * g].storage().dropped(), tensors[2 * g + 1].storage().dropped()) << g;
      if (!tensors[2 * g].storage().dropped()) there += std::to_string(g);
    }
    return there;
  }
  int64_t out() const { return pager->moved().bytes_out; }
  int64_t in() const { return pager->moved().bytes_in; }

  Device device, host;
  std::vector<Tensor> taken, tensors;  // two of each group
  std::optional<Pager> pager;
};

struct L12_Pager : ::testing::TestWithParam<const char*> {};
const auto kName = [](const auto& info) { return std::string(info.param); };
INSTANTIATE_TEST_SUITE_P(Devices, L12_Pager, ::testing::ValuesIn(devices_with_data()), kName);
INSTANTIATE_TEST_SUITE_P(NoData, L12_Pager, ::testing::Values("meta"), kName);

TEST_P(L12_Pager, WhatGoesComesBackToTheBit) {
  for (const bool expandable : {false, true}) {
    Paged p(GetParam(), 1, 3, expandable);
    EXPECT_EQ(p.pager->groups(), 3u);
    EXPECT_TRUE(p.intact());
    uint64_t stream = 100;
    for (const size_t g : {0, 2, 2, 1, 0}) {  // later writes move, too
      p.write(p.tensors[2 * g], noise(kMiB, ++stream));
      p.pager->use((g + 1) % 3);
      EXPECT_TRUE(p.tensors[2 * g].storage().dropped());
      EXPECT_TRUE(p.holds(p.tensors[2 * g], noise(kMiB, stream)) &&
                  p.holds(p.tensors[2 * g + 1], noise(kMiB, 2 * g + 1)))
          << g;
    }
    EXPECT_EQ(p.device.meter().reserved(), 4 * kMiB) << "never more than the budget";
    EXPECT_EQ(p.device.meter().peak_reserved(), 4 * kMiB);
  }
}

TEST_P(L12_Pager, TheGroupBeforeTheOneInUseGoesFirst) {
  Paged p(GetParam(), 3, 5);
  EXPECT_EQ(p.on_device(), "014") << "no group was in use: of those on the device the last had to leave";
  int64_t moved = 4 * kMiB;
  EXPECT_EQ(p.out(), moved);
  const std::vector<size_t> used{2, 3, 4, 0, 1, 2, 0, 1, 4, 3, 2};
  const char* const there[]{"024", "034", "034", "034", "134", "234", "023", "123", "124", "134", "234"};
  for (size_t i = 0; i < used.size(); ++i) {
    if (p.tensors[2 * used[i]].storage().dropped()) moved += 2 * kMiB;
    p.pager->use(used[i]);
    EXPECT_EQ(p.on_device(), there[i]) << i;
    EXPECT_EQ(p.out(), moved) << "one group leaves for each that returns";
    EXPECT_EQ(p.in(), moved - 4 * kMiB);
  }
  const Tensor x = p.device_tensor(kMiB);
  EXPECT_EQ(p.on_device(), "23") << "a new tensor needs room: before 2 come 1, 0, 4; 4 is on the device";
  p.pager->done();
  const Tensor y = p.device_tensor(kMiB), z = p.device_tensor(kMiB);
  EXPECT_EQ(p.on_device(), "2") << "no group is in use: the last one leaves";
  EXPECT_EQ(p.out() - p.in(), 8 * kMiB);
  EXPECT_GT(p.pager->moved().seconds, 0);
}

TEST_P(L12_Pager, WhatIsOnTheHostIsOnItsMeterWithTheSameKindAndName) {
  Paged p(GetParam(), 2, 4);
  const Meter &device = p.device.meter(), &host = p.host.meter();
  const auto on_host = [&] {  // in the order of the memory, in which they arrived
    std::string names;
    for (const auto& [serial, segment] : p.host.allocator().segments())
      for (const Block* b = segment.first; b; b = b->next)
        if (!b->free && b->kind != Kind::Other) names += b->name + ", " + name_of(b->kind) + "; ";
    return names;
  };
  const auto expect = [&](int64_t groups) {
    for (const Kind k : {Kind::Optimizer, Kind::Weight}) {
      EXPECT_EQ(host.now()[k], groups * kMiB);
      EXPECT_EQ(device.now()[k], (4 - groups) * kMiB);
    }
    EXPECT_EQ(p.out() - p.in(), 2 * groups * kMiB);
  };
  expect(2);
  EXPECT_EQ(p.on_device(), "03");
  EXPECT_EQ(on_host(), "1.first, optimizer; 1.second, weight; 2.first, optimizer; 2.second, weight; ");
  p.device.allocator().set_budget(0);
  p.pager->use(1);
  expect(1);
  p.tensors[5].storage().set_kind(Kind::Weight);  // 2.second returns for this
  expect(0);
  EXPECT_EQ(on_host(), "");
  p.tensors[5].storage().set_kind(Kind::Comm);
  p.pager->done();
  p.device.allocator().set_budget(2 * kMiB * 5);
  const Tensor x = p.device_tensor(kMiB), y = p.device_tensor(4 * 1024);
  EXPECT_EQ(on_host(), "3.first, optimizer; 3.second, weight; ");
  const Tensor z = p.device_tensor(kMiB);
  EXPECT_EQ(host.now()[Kind::Comm], kMiB) << "the kind that the tensor has now";
  p.device.allocator().set_budget(0);
  EXPECT_EQ(p.tensors[5].storage().kind(), Kind::Comm);
  EXPECT_TRUE(p.intact());
  EXPECT_EQ(device.now()[Kind::Comm] - host.now()[Kind::Comm], kMiB);
}

TEST_P(L12_Pager, WithoutPressureNothingMoves) {
  Paged p(GetParam(), 3, 3);
  for (int round = 0; round < 2; ++round)
    for (size_t g = 0; g < 4; ++g) p.pager->use(g);  // group 3 has no tensors
  EXPECT_TRUE(p.intact());
  EXPECT_EQ(double(p.out() + p.in()) + p.pager->moved().seconds, 0);
}

TEST_P(L12_Pager, ReadingOneTensorBringsItsGroupWhichIsThenInUse) {
  const std::vector<std::function<void(const Tensor&)>> reads{
      [](const Tensor& t) { t.in(); }, [](const Tensor& t) { t.narrow(2, 1).in(); },
      [](const Tensor& t) { Tensor(t).set(); },
      [](const Tensor& t) { t.reshape({t.numel()}).detach().in(); }};
  for (size_t which : {2, 3})
    for (const auto& read : reads) {
      Paged p(GetParam(), 2, 4);
      p.pager->use(3);
      EXPECT_EQ(p.on_device(), "03");
      EXPECT_EQ(p.tensors[which].storage().bytes(), kMiB);
      EXPECT_EQ(p.tensors[which].storage().name().substr(0, 2), "1.");
      EXPECT_EQ(p.in(), 0) << "reading size and name must not bring a group back";
      read(p.tensors[which]);
      EXPECT_EQ(p.on_device(), "13") << "group 0 comes before 1 and leaves";
      EXPECT_EQ(p.in(), 2 * kMiB);
      const Tensor x = p.device_tensor(kMiB);
      EXPECT_EQ(p.on_device(), "1");
      EXPECT_THROW(p.device_tensor(2 * kMiB), OutOfMemory) << "the group in use must stay";
      EXPECT_EQ(p.on_device(), "1");
    }
}

TEST_P(L12_Pager, GoingAndComingIsNoWriteAndViewsStay) {
  Paged p(GetParam(), 1, 2);
  const Tensor t = p.tensors[1], part = t.narrow(1, 2), flat = part.reshape({part.numel()});
  const std::vector<char> all = noise(kMiB, 1), half(all.begin() + kMiB / 4, all.begin() + 3 * kMiB / 4);
  const uint32_t version = t.storage().version;
  for (int round = 0; round < 2; ++round) {
    p.pager->use(0);
    EXPECT_TRUE(p.holds(part, half) && p.holds(flat, half));
    p.pager->use(1);
    EXPECT_TRUE(t.storage().dropped() && part.storage().dropped());
    EXPECT_TRUE(p.holds(flat, half)) << "the first read after the group left";
  }
  EXPECT_EQ(t.storage().version, version);
  EXPECT_EQ(&flat.storage(), &t.storage());
  p.pager->use(1);
  Tensor row = t.narrow(3, 1);
  row.set();
  EXPECT_EQ(t.storage().version, version + 1)
      << "set() counts as one write, although it brings the group back first";
}

TEST_P(L12_Pager, OutOfMemoryIsSaidWhenNothingMoreCanGo) {
  Paged p(GetParam(), 2, 3);
  p.pager->use(1);
  EXPECT_EQ(p.on_device(), "12");
  expect_refused("out of memory: other [104857600] (other) needs 104857600 bytes",
                 [&] { p.device_tensor(100 * kMiB); });
  EXPECT_EQ(p.on_device(), "1") << "all groups but the one in use must leave first";
  EXPECT_TRUE(p.intact());
  p.pager->done();
  EXPECT_THROW(p.device_tensor(100 * kMiB), OutOfMemory);
  EXPECT_EQ(p.on_device(), "");
  EXPECT_EQ(p.out() - p.in(), 6 * kMiB);
  EXPECT_EQ(p.device.meter().reserved(), 2 * kMiB);
  EXPECT_TRUE(p.intact());
}

// There is room for one of the two tensors: the half that has returned stays, and leaves, as half a group.
TEST_P(L12_Pager, AGroupThatComesHalfWayIsWhole) {
  Paged p(GetParam(), 1, 2);
  Tensor x = p.device_tensor(kMiB);
  EXPECT_THROW(p.pager->use(0), OutOfMemory);
  EXPECT_EQ(p.in(), kMiB);
  EXPECT_EQ(p.out(), 4 * kMiB);
  EXPECT_FALSE(p.tensors[0].storage().dropped());
  EXPECT_TRUE(p.tensors[1].storage().dropped());
  p.pager->done();
  const Tensor y = p.device_tensor(kMiB);
  EXPECT_EQ(p.out(), 5 * kMiB) << "the half that was on the device";
  x = {};
  EXPECT_THROW(p.tensors[1].in(), OutOfMemory);
  p.device_tensor(kMiB);  // the half that did return is not in use
  p.taken.clear();
  EXPECT_TRUE(p.intact());
  EXPECT_EQ(p.out() - p.in(), 2 * kMiB);
}

TEST_P(L12_Pager, AGroupStaysWhileItGrowsAlsoIfSomeOfItIsOnTheHost) {
  Paged p(GetParam(), 2, 2);
  p.add("third", Kind::Optimizer, DType::BF16, 0);
  EXPECT_TRUE(p.tensors[2].storage().dropped()) << "no group was in use, so the last one had to leave";
  const Tensor x = p.device_tensor(kMiB);
  p.pager->done();
  p.add("third", Kind::Optimizer, DType::BF16, 1);
  EXPECT_EQ(p.out(), 5 * kMiB) << "two tensors, then three";
  for (const bool grows : {true, false}) {
    if (!grows) p.pager->done();
    EXPECT_THROW(p.device_tensor(100 * kMiB), OutOfMemory);
    EXPECT_EQ(p.tensors[5].storage().dropped(), !grows);
  }
  EXPECT_EQ(p.in(), 2 * kMiB) << "the group must return to grow";
  p.taken.clear();
  EXPECT_TRUE(p.intact());
}

TEST_P(L12_Pager, AnotherOneThatEndsLeavesTheFirst) {
  Paged p(GetParam(), 1, 2);
  { const Pager second(p.device, p.host); }
  Device another(GetParam());
  Pager(another, p.host);
  EXPECT_TRUE(p.intact()) << "the first pager must still work";
  p.pager.reset();
  p.tensors.clear();
  p.pager.emplace(p.device, p.host);
  for (const char* name : {"first", "second"}) p.add(name, Kind::Optimizer, DType::F32, 0);
  p.pager->done();
  const Tensor x = p.device_tensor(kMiB);
  EXPECT_EQ(p.on_device(), "");
}

TEST_P(L12_Pager, AfterItsEndWhatIsOnTheHostIsRefusedAndTheRestIsThere) {
  Paged p(GetParam(), 1, 2);
  const Tensor part = p.tensors[1].narrow(0, 1);
  p.pager.reset();
  EXPECT_EQ(p.host.meter().now()[Kind::Optimizer] + p.host.meter().now()[Kind::Weight], 0);
  expect_refused("tensor '0.first' has no memory: it is on the host, and its pager has ended",
                 [&] { p.tensors[0].in(); });
  expect_refused("tensor '0.second' has no memory: it is on the host", [&] { part.in(); });
  EXPECT_TRUE(p.holds(p.tensors[2], noise(kMiB, 2)) && p.holds(p.tensors[3], noise(kMiB, 3)));
  EXPECT_THROW(p.device_tensor(kMiB), OutOfMemory) << "a pager that has ended must not be asked for room";
  EXPECT_TRUE(p.holds(p.tensors[2], noise(kMiB, 2)));
  p.tensors.clear();
  EXPECT_EQ(p.device_tensor(kMiB).bytes(), kMiB);
}

}  // namespace
}  // namespace gradus
