// Optimizer states that move to the host when the device has no room: updates and saved runs are bitwise
// equal to those on a device with room; and every byte that moves is counted.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "src/io/save_load.h"
#include "src/optim/adamw_8bit.h"
#include "src/optim/muon.h"
#include "tests/devices.h"
#include "tests/optim/paged_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

template <class O, class Args>
Make maker(const Args& args) {
  return [args](Parameters& p) { return std::make_unique<O>(p, args); };
}
const AdamWArgs kAdamW{.weight_decay = 0.1f};
const Make kMakeAdamW = maker<AdamW>(kAdamW);
const std::map<std::string, Make>& optimizers() {
  static const std::map<std::string, Make> all{
      {"sgd", maker<Sgd>(SgdArgs{})},
      {"momentum", maker<Sgd>(SgdArgs{.momentum = 0.9f, .nesterov = true})},
      {"adamw", kMakeAdamW},
      {"adafactor", maker<Adafactor>(AdafactorArgs{.weight_decay = 0.1f})},
      {"adamw_8bit", maker<AdamW8bit>(kAdamW)},
      {"muon", maker<Muon>(MuonArgs{.others = kAdamW})}};
  return all;
}

// Matrices and vectors; most states in fp32 have 0.6 MB, so that three fit in a segment of 2 MiB.
const Shapes kMany{{"h.0.bias", {150001}}, {"wte", {10007, 15}},     {"h.1.bias", {150003}},
                   {"norm", {257}},        {"h.1.wide", {15, 2501}}, {"h.1.tall", {7500, 5}},
                   {"h.2.bias", {120001}}, {"h.3.bias", {75002}}};
const Shapes kFew{{"h.0.a", {131072}}, {"h.0.b", {512, 256}}, {"h.1.a", {131072}}, {"h.1.b", {256, 512}}};

void expect_equal(Training& paged, Training& at_home, const std::string& what) {
  const auto got = paged.bits(), want = at_home.bits();
  EXPECT_EQ(got.size(), want.size());
  for (const auto& [name, bits] : want) EXPECT_TRUE(got.at(name) == bits) << what << ": " << name;
}

struct L12_PagedStates : ::testing::TestWithParam<const char*> {};
ON_DEVICES_WITH_DATA(L12_PagedStates);

bool slow(const char* device) { return std::string_view(device) == "emu"; }
const Shapes& shapes_for(const char* device) { return slow(device) ? kFew : kMany; }

// The budget leaves room for about half of the states. With loss scaling the second update is skipped.
void expect_as_with_room(const char* device, const Precision& precision, const std::set<std::string>& on_slow,
                         bool scaled = false) {
  for (const auto& [name, make] : optimizers()) {
    if (slow(device) && !on_slow.contains(name)) continue;
    const Shapes& shapes = shapes_for(device);
    Training at_home(device, shapes, precision, make);
    EXPECT_FALSE(at_home.optimizer->pager) << "without a host there must be no pager";
    const int64_t bytes = at_home.context.device.meter().now()[Kind::Optimizer];
    const int64_t least = slow(device) ? 3 * kMiB / 2 : 5 * kMiB / 4;  // one group and one more tensor
    const int64_t room = bytes > 2 * kMiB ? round_up(bytes / 2, 2 * kMiB) : least;
    Training paged(device, shapes, precision, make, room);
    constexpr int kRounds = 3;
    for (Training* run : {&at_home, &paged}) {
      if (scaled) start_loss_scaling(run->context.device, 1024);
      for (int step = 1; step <= kRounds; ++step)
        run->update(step, scaled || step == 2 ? 0.5 : 0, scaled && step == 2);
      EXPECT_EQ(run->optimizer->scalars().updates, scaled ? 2 : 3) << name;
    }
    const Pager::Moved traffic = paged.moved();
    EXPECT_EQ(traffic.bytes_out - traffic.bytes_in, paged.on_host()) << name;
    EXPECT_EQ(paged.on_host() + paged.context.device.meter().now()[Kind::Optimizer], bytes) << name;
    EXPECT_GE(traffic.bytes_in, kRounds * (bytes - room))
        << name << ": each round must bring back the states that have no room";
    EXPECT_EQ(traffic.bytes_out > 0, name != "sgd") << "only sgd has no states to move";
    expect_equal(paged, at_home, name);
  }
}
TEST_P(L12_PagedStates, UpdatesAreThoseOfADeviceWithRoomFp32) {
  expect_as_with_room(GetParam(), uniform(DType::F32), {"momentum"});
}
TEST_P(L12_PagedStates, UpdatesAreThoseOfADeviceWithRoomMixedWithLossScaling) {
  expect_as_with_room(GetParam(), mixed(DType::F16), {"adamw"}, true);
}
TEST_P(L12_PagedStates, UpdatesAreThoseOfADeviceWithRoomHalf) {
  expect_as_with_room(GetParam(), uniform(DType::F16), {});
}

std::string file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_P(L12_PagedStates, SavedRunsAreTheSameAndGoOn) {
  const std::string path = ::testing::TempDir() + "paged-" + std::to_string(::getpid()) + ".safetensors";
  const bool few = slow(GetParam());
  for (const std::string name : {"adamw", "adamw_8bit"}) {
    if (few && name != "adamw") continue;
    const Shapes& shapes = shapes_for(GetParam());
    const int64_t room = few ? 2 * kMiB : name == "adamw" ? 4 * kMiB : 5 * kMiB / 4;
    const auto run = [&](std::optional<int64_t> r) {
      return std::make_unique<Training>(GetParam(), shapes, mixed(DType::BF16), optimizers().at(name), r);
    };
    const auto at_home = run({}), paged = run(room), loaded = run(room);
    std::string saved[2];
    for (Training* t : {at_home.get(), paged.get()}) {
      t->update(1);
      save_training(path, t->parameters, *t->optimizer, {{"seed", "1"}});
      saved[t == paged.get()] = file(path);
      t->update(2);
    }
    EXPECT_TRUE(saved[0] == saved[1]) << name << ": the saved files must be equal";
    loaded->update(5);  // load_training must overwrite this
    load_training(path, loaded->parameters, *loaded->optimizer);
    EXPECT_GT(loaded->on_host(), 0);
    loaded->update(2);
    expect_equal(*paged, *at_home, name);
    expect_equal(*loaded, *at_home, name + ", loaded");
  }
  std::filesystem::remove(path);
}

TEST_P(L12_PagedStates, AGroupIsOfParametersThatHaveAtLeastAMebibyteOfStates) {
  const auto groups = [&](const Shapes& shapes) {
    return Training(GetParam(), shapes, uniform(DType::F32), kMakeAdamW, 16 * kMiB)
        .optimizer->pager->groups();
  };
  const Shape full{131072}, less{131071}, rest{1};
  EXPECT_EQ(groups({{"a", full}, {"b", full}}), 2u) << "m and v of 512 KiB each";
  EXPECT_EQ(groups({{"a", less}, {"b", rest}, {"c", rest}, {"d", rest}}), 2u);
  EXPECT_EQ(groups({{"a", rest}, {"b", full}, {"c", less}, {"d", rest}}), 2u);
}

// Also if a different group was read last, and if temporaries need room while a group is updated: the group
// must stay on the device.
TEST_P(L12_PagedStates, GroupsThatWereReadBetweenUpdatesAreUpdatedAllTheSame) {
  const Shapes shapes{{"h.0", {2, 131072}}, {"h.1", {2, 131072}}, {"wte", {262144}}};  // 1, 1 and 2 MiB
  const Make make = maker<Muon>(MuonArgs{.iterations = 2});
  Training at_home(GetParam(), shapes, uniform(DType::F32), make),
      paged(GetParam(), shapes, uniform(DType::F32), make, 13 * kMiB / 4);
  for (int step = 1; step <= 2; ++step)
    for (Training* run : {&at_home, &paged}) {
      if (run == &paged && step == 2) {
        run->context.make_current();
        run->optimizer->pager->use(0);
        for (int i = 0; i < 2; ++i) run->take(kMiB - 65536);
        EXPECT_EQ(run->on_device(), std::set<size_t>{0});
        run->taken.resize(run->taken.size() - 2);
        run->optimizer->states[2].tensors[0].in();
        EXPECT_EQ(run->on_device(), (std::set<size_t>{0, 2}));
      }
      run->update(step);
    }
  expect_equal(paged, at_home, "muon");
}

TEST_P(L12_PagedStates, WithoutAHostAnUpdateIsOneKernelThatCountsAndOneOverAllParameters) {
  Training run(GetParam(), kFew, uniform(DType::F32), kMakeAdamW);
  const int64_t before = run.context.device.meter().totals(OpClass::Elementwise).calls;
  run.update(1);
  EXPECT_EQ(run.context.device.meter().totals(OpClass::Elementwise).calls, before + 2);
}

// The places of the groups after an update, and the bytes that moved, follow from the rule: the previous
// group leaves first. Room for a single group is enough. Meta, which computes nothing, gives the same
// results.
void expect_moves(const char* device, int64_t rooms) {
  constexpr int64_t kGroup = kMiB;
  Training run(device, kFew, uniform(DType::F32), kMakeAdamW, rooms * kGroup);
  EXPECT_STREQ(run.context.host->name(), device == std::string("meta") ? "meta" : "cpu");
  const int64_t count = int64_t(run.optimizer->pager->groups()), away = (count - rooms) * kGroup;
  ASSERT_EQ(count, 4) << "each parameter must be one group";
  EXPECT_EQ(run.moved().bytes_out, away) << "groups must move when the optimizer is made";
  std::set<size_t> there = run.on_device();
  int64_t in = 0;
  for (int step = 1; step <= 4; ++step) {
    for (int64_t g = 0; g < count; ++g) {
      if (there.contains(size_t(g))) continue;
      int64_t goes = g;
      while (!there.contains(size_t(goes))) goes = (goes + count - 1) % count;
      there.erase(size_t(goes)), there.insert(size_t(g)), in += kGroup;
    }
    run.update(step);
    EXPECT_EQ(run.on_device(), there) << device << ", step " << step;
    EXPECT_EQ(run.moved().bytes_in, in);
    EXPECT_EQ(run.moved().bytes_out, in + away);
    EXPECT_EQ(run.on_host(), away);
  }
  run.bits();  // groups that are read between updates, for example to save a run, may leave again
  for (int64_t i = 0; i < rooms; ++i) run.take(kGroup);
  EXPECT_EQ(run.on_device().size(), 0u) << "between updates every group must make room for a request";
}
TEST_P(L12_PagedStates, WhatMovesIsCountedExactlyAndTheSameOnMeta) {
  for (const char* device : {GetParam(), "meta"})
    for (const int64_t rooms : {1, 2}) expect_moves(device, rooms);
}

TEST_P(L12_PagedStates, AnOptimizerLargerThanTheRoomIsMadeWithZeros) {
  Training run(GetParam(), kFew, mixed(DType::BF16), kMakeAdamW, 2 * kMiB);
  EXPECT_EQ(run.on_host(), 2 * kMiB) << "2 of 4 MiB must be on the host";
  run.take(kMiB), run.take(kMiB);
  EXPECT_EQ(run.on_host(), 4 * kMiB) << "no group is in use, so all must make room";
  run.taken.resize(run.taken.size() - 2);
  const auto bits = run.bits();
  for (const Parameter& p : run.parameters)
    for (const char* state : {".m", ".v"})
      EXPECT_EQ(bits.at(p.name + state), std::vector<char>(512 * 1024, 0)) << p.name << state;
  run.optimizer.reset();
  run.context.host.reset();
  EXPECT_THROW(kMakeAdamW(run.parameters), OutOfMemory) << "without a host the states do not fit";
  run.context.add_host();
  run.optimizer = kMakeAdamW(run.parameters);
  EXPECT_EQ(run.on_host(), 2 * kMiB) << "with a host the groups are made one after the other";
  EXPECT_EQ(run.bits(), bits);
}

// Two optimizers in one context: the groups of each move to the host when the other needs room, and return.
TEST_P(L12_PagedStates, TwoOptimizersShareTheRoom) {
  const Make of_h0 = [](Parameters& all) {
    return std::make_unique<AdamW>(all, kAdamW, [](const Parameter& p) { return p.name.starts_with("h.0"); });
  };
  Training at_home(GetParam(), kFew, uniform(DType::F32), kMakeAdamW),
      paged(GetParam(), kFew, uniform(DType::F32), kMakeAdamW, 2 * kMiB);
  std::vector<std::unique_ptr<Optimizer>> second;
  for (Training* run : {&at_home, &paged}) {
    run->context.make_current();
    second.push_back(of_h0(run->parameters));
    for (int step = 1; step <= 3; ++step) run->update(step), second.back()->step(0.01);
  }
  expect_equal(paged, at_home, "weights, and states of the first");
  EXPECT_GT(std::min(paged.moved().bytes_in, second[1]->pager->moved().bytes_out), 0);
  paged.context.make_current();
  paged.optimizer.reset();  // in the order in which they were made
  second[1]->step(0.01);
}

}  // namespace
}  // namespace gradus
