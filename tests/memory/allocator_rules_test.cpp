// The allocator's rules one by one, each on both sides of its threshold.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

struct Row {
  int64_t request, block, segment, rest;  // the rest stays free
  bool small;
};
void expect_rows(std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.request);
    Fixture f;
    Block* b = f.get(row.request);
    EXPECT_EQ(b->size, row.block);
    EXPECT_EQ(b->requested, row.request);
    EXPECT_EQ(b->next ? b->next->size : 0, row.rest);
    EXPECT_EQ(b->segment->bytes, row.segment);
    EXPECT_EQ(b->segment->addresses, row.segment);
    EXPECT_EQ(b->segment->page, 0);
    EXPECT_EQ(b->segment->small, row.small);
    EXPECT_EQ(f.source->left, (int64_t(4) << 30) - row.segment)
        << "bytes left on the device after the request";
    EXPECT_EQ(f.meter.reserved(), row.segment);
    EXPECT_EQ(f.meter.now().allocated(), row.block);
    EXPECT_EQ(f.meter.now()[Kind::Other], row.request);
    f.allocator.free(b);
  }
}

// The rows of PyTorch's rules: request, block, segment in a fresh allocator.
TEST(L01_Allocator, PublishedTestVectors) {
  expect_rows({{0, 512, 2 * kMiB, 2'096'640, true},
               {1, 512, 2 * kMiB, 2'096'640, true},
               {512, 512, 2 * kMiB, 2'096'640, true},
               {513, 1024, 2 * kMiB, 2'096'128, true},
               {1'048'576, 1'048'576, 2 * kMiB, 1'048'576, true},
               {1'048'577, 1'049'088, 20 * kMiB, 19'922'432, false},
               {10'485'759, 10'485'760, 10 * kMiB, 0, false},
               {10'485'761, 10'486'272, 12 * kMiB, 2'096'640, false},
               {123'207'680, 123'731'968, 118 * kMiB, 0, false},  // 512 KiB are not split off
               {20'971'520, 20'971'520, 20 * kMiB, 0, false},
               {20'971'521, 20'972'032, 22 * kMiB, 2'096'640, false}});
}

// Thresholds: blocks from 10 MiB on get their own segment; the large pool splits off a rest above 1 MiB.
TEST(L01_Allocator, BothSidesOfTheLargePoolsThresholds) {
  expect_rows({{10 * kMiB - 512, 10 * kMiB - 512, 20 * kMiB, 10 * kMiB + 512, false},
               {10 * kMiB - 511, 10 * kMiB, 10 * kMiB, 0, false},
               {19 * kMiB - 512, 19 * kMiB - 512, 20 * kMiB, kMiB + 512, false},
               {19 * kMiB, 20 * kMiB, 20 * kMiB, 0, false}});
}

TEST(L01_Allocator, TheSmallPoolSplits512BytesOff) {
  Fixture f;
  Block *whole = f.get(kMiB), *most = f.get(kMiB - 512), *last = f.get(512);
  EXPECT_EQ(place_of(last), Place(0, 2 * kMiB - 512));
  for (Block* b : {whole, most, last}) f.allocator.free(b);
}

// The small pool serves no large requests and the large pool no small ones, however much is free.
TEST(L01_Allocator, NeitherPoolTakesFromTheOther) {
  Fixture f;
  f.allocator.free(f.get(kMiB));  // 2 MiB free, small
  Block* large = f.get(kMiB + 1);
  EXPECT_EQ(place_of(large), Place(1, 0));
  Block* small = f.get(kMiB);
  EXPECT_EQ(place_of(small), Place(0, 0)) << "although the large pool has a free block too";
  Block* second = f.get(2 * kMiB);
  EXPECT_EQ(place_of(second), Place(1, kMiB + 512));
  expect_consistent(f.allocator);
  for (Block* b : {large, small, second}) f.allocator.free(b);
}

// Blocks of one segment: left, right, or both neighbours free, or none.
TEST(L01_Allocator, MergesLeftRightAndBothInTheLargePool) {
  for (int free_neighbours = 0; free_neighbours < 4; ++free_neighbours) {
    Fixture f;
    Block *left = f.get(3 * kMiB), *middle = f.get(4 * kMiB), *right = f.get(5 * kMiB);
    Block* wall = f.get(8 * kMiB);  // the rest of the 20 MiB
    const bool with_left = free_neighbours & 1, with_right = free_neighbours & 2;
    if (with_left) f.allocator.free(left);
    if (with_right) f.allocator.free(right);
    f.allocator.free(middle);
    expect_consistent(f.allocator);
    const int64_t merged = (4 + (with_left ? 3 : 0) + (with_right ? 5 : 0)) * kMiB;
    Block* all = f.get(merged);
    EXPECT_EQ(place_of(all), Place(0, with_left ? 0 : 3 * kMiB)) << free_neighbours;
    EXPECT_EQ(all->size, merged);
    EXPECT_EQ(f.meter.device_requests(), 1);
    expect_consistent(f.allocator);
    if (!with_left) f.allocator.free(left);
    if (!with_right) f.allocator.free(right);
    for (Block* b : {all, wall}) f.allocator.free(b);
    EXPECT_EQ(f.allocator.segments().begin()->second.first->size, 20 * kMiB);
  }
}

TEST(L01_Allocator, TheBestFitIsTheSmallestAndOfEqualOnesTheFirst) {
  Fixture f;
  std::vector<Block*> holes, live;
  for (const int64_t size : {8192, 2048, 4096, 2048, 1024}) {
    holes.push_back(f.get(size));
    live.push_back(f.get(512));  // between them
  }
  for (Block* b : holes) f.allocator.free(b);
  for (const int64_t offset : {8192 + 512, 8192 + 2048 + 4096 + 3 * 512}) {
    live.push_back(f.get(1500));
    EXPECT_EQ(live.back()->offset, offset);
  }
  for (Block* b : live) f.allocator.free(b);
}

// Segments whose addresses go down while their serials go up: a tie is decided by the serial.
struct Descending : SmallDevice {
  Descending() : SmallDevice(int64_t(4) << 30) {}
  void* acquire(int64_t bytes) override { return next -= bytes; }
  void release(void*, int64_t) noexcept override {}
  bool on_host() const override { return false; }
  char* next = reinterpret_cast<char*>(uintptr_t(1) << 61);
};

TEST(L01_Allocator, TiesAreDecidedBySerialNotByAddress) {
  Meter meter;
  Allocator allocator(std::make_unique<Descending>(), meter);
  std::vector<Block*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(allocator.allocate(12 * kMiB, Kind::Other, "x"));
  ASSERT_GT(blocks[0]->data(), blocks[3]->data());
  for (const int i : {2, 0, 3, 1}) allocator.free(blocks[i]);
  for (int i = 0; i < 4; ++i) {
    blocks[i] = allocator.allocate(12 * kMiB, Kind::Other, "x");
    EXPECT_EQ(place_of(blocks[i]), Place(i, 0));
  }
  // A later segment's smaller block is better than an earlier one's larger: size comes first.
  Block* best = allocator.allocate(14 * kMiB, Kind::Other, "x");
  Block* late = allocator.allocate(10 * kMiB, Kind::Other, "x");
  for (Block* b : {best, late}) allocator.free(b);
  Block* again = allocator.allocate(10 * kMiB, Kind::Other, "x");
  EXPECT_EQ(place_of(again), Place(5, 0));
  for (Block* b : blocks) allocator.free(b);
  allocator.free(again);
}

TEST(L01_Allocator, BlocksAreAlignedAndUsable) {
  Meter meter;
  Allocator allocator(host_source(), meter);
  std::vector<Block*> blocks;
  for (const int64_t bytes : {0, 1, 7, 255, 257, 4096, 3'000'001, 12'345'678}) {
    blocks.push_back(allocator.allocate(bytes, Kind::Weight, "w"));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(blocks.back()->data()) % 64, 0u) << bytes << " bytes";
    std::memset(blocks.back()->data(), int(blocks.size()), size_t(bytes));
  }
  for (size_t i = 0; i < blocks.size(); ++i)  // no block has overwritten a different one
    for (int64_t at = 0; at < blocks[i]->requested; ++at) ASSERT_EQ(blocks[i]->data()[at], char(i + 1));
  for (Block* b : blocks) allocator.free(b);
}

}  // namespace
}  // namespace gradus
