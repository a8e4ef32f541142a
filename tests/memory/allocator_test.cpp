// The caching allocator against PyTorch's published rules, and against an independent model of its
// invariants.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

// The rows of PyTorch's rules: request, block, segment in a fresh allocator.
TEST(L01_Allocator, PublishedTestVectors) {
  struct Row {
    int64_t request, block, segment, rest;  // the rest stays free
    bool small;
  };
  for (const Row& row : {Row{0, 512, 2 * kMiB, 2'096'640, true}, Row{1, 512, 2 * kMiB, 2'096'640, true},
                         Row{512, 512, 2 * kMiB, 2'096'640, true}, Row{513, 1024, 2 * kMiB, 2'096'128, true},
                         Row{1'048'576, 1'048'576, 2 * kMiB, 1'048'576, true},
                         Row{1'048'577, 1'049'088, 20 * kMiB, 19'922'432, false},
                         Row{10'485'759, 10'485'760, 10 * kMiB, 0, false},
                         Row{10'485'761, 10'486'272, 12 * kMiB, 2'096'640, false},
                         Row{123'207'680, 123'731'968, 118 * kMiB, 0, false},  // 512 KiB are not split off
                         Row{20'971'520, 20'971'520, 20 * kMiB, 0, false},
                         Row{20'971'521, 20'972'032, 22 * kMiB, 2'096'640, false}}) {
    Fixture f;
    Block* b = f.get(row.request);
    EXPECT_EQ(b->size, row.block) << "request " << row.request;
    EXPECT_EQ(b->segment->bytes, row.segment) << "request " << row.request;
    EXPECT_EQ(b->next ? b->next->size : 0, row.rest) << "request " << row.request;
    EXPECT_EQ(b->segment->small, row.small) << "request " << row.request;
    EXPECT_EQ(f.meter.reserved(), row.segment);
    EXPECT_EQ(f.meter.now().allocated(), row.block);
    EXPECT_EQ(f.meter.now()[Kind::Other], row.request);
    EXPECT_EQ(f.meter.now().rounding, row.block - row.request);
    f.allocator.free(b);
  }
}

TEST(L01_Allocator, SplitsAtTheThreshold) {
  Fixture f;
  // Small pool: a remainder of 512 bytes is split off.
  Block* whole = f.get(kMiB);
  Block* most = f.get(kMiB - 512);
  ASSERT_NE(most->next, nullptr);
  EXPECT_EQ(most->next->size, 512);
  EXPECT_EQ(f.get(512), most->next);
  EXPECT_EQ(f.meter.reserved(), 2 * kMiB);
  for (Block* b : {most->next, most, whole}) f.allocator.free(b);
  // Large pool: a remainder of exactly 1 MiB stays with the block, one of 512 bytes more does not.
  Block* stays = f.get(19 * kMiB);
  EXPECT_EQ(stays->size, 20 * kMiB);
  EXPECT_EQ(f.meter.now().rounding, kMiB);
  f.allocator.free(stays);
  Block* goes = f.get(19 * kMiB - 512);
  EXPECT_EQ(goes->size, 19 * kMiB - 512);
  ASSERT_NE(goes->next, nullptr);
  EXPECT_EQ(goes->next->size, kMiB + 512);
  f.allocator.free(goes);
  expect_consistent(f.allocator);
}

TEST(L01_Allocator, MergesWithBothNeighbours) {
  Fixture f;
  Block* b[4];
  for (Block*& block : b) block = f.get(512 * 1024);
  ASSERT_EQ(f.allocator.segments().size(), 1u);
  f.allocator.free(b[0]);
  f.allocator.free(b[2]);
  expect_consistent(f.allocator);
  f.allocator.free(b[1]);  // joins 0 and 2
  expect_consistent(f.allocator);
  const Segment& segment = f.allocator.segments().begin()->second;
  EXPECT_TRUE(segment.first->free);
  EXPECT_EQ(segment.first->size, 3 * 512 * 1024);
  f.allocator.free(b[3]);
  EXPECT_EQ(segment.first->size, 2 * kMiB);
  EXPECT_EQ(segment.first->next, nullptr);
}

TEST(L01_Allocator, NeverMergesAcrossSegments) {
  Fixture f;
  Block *a = f.get(30 * kMiB), *b = f.get(30 * kMiB);
  f.allocator.free(a);
  f.allocator.free(b);
  expect_consistent(f.allocator);
  EXPECT_EQ(f.allocator.segments().size(), 2u);
  Block* c = f.get(40 * kMiB);  // neither piece is large enough
  EXPECT_EQ(f.allocator.segments().size(), 3u);
  f.allocator.free(c);
}

// Leaves free blocks of the given sizes, separated by blocks in use, and returns those to be freed.
std::vector<Block*> holes(Fixture& f, std::initializer_list<int64_t> sizes) {
  std::vector<Block*> frames, freed;
  for (const int64_t size : sizes) {
    freed.push_back(f.get(size, "hole"));
    frames.push_back(f.get(512, "frame"));
  }
  for (Block* b : freed) f.allocator.free(b);
  return frames;
}

TEST(L01_Allocator, BestFitIsTheSmallestThatIsLargeEnough) {
  Fixture f;
  std::vector<Block*> frames = holes(f, {8192, 2048, 4096, 1024});
  Block* b = f.get(1500);
  EXPECT_EQ(b->offset, 8192 + 512);  // the hole of 2048, not the first and not the last
  frames.push_back(b);
  for (Block* frame : frames) f.allocator.free(frame);
}

TEST(L01_Allocator, TiesGoToTheOldestSegmentThenTheLowestOffset) {
  Fixture f;
  Block* first = f.get(30 * kMiB);
  Block* second = f.get(30 * kMiB);
  f.allocator.free(second);  // freed first, and whatever its address is,
  f.allocator.free(first);
  Block* b = f.get(30 * kMiB);
  EXPECT_EQ(b->segment->serial, 0);  // the older segment wins
  f.allocator.free(b);

  Fixture g;
  std::vector<Block*> frames = holes(g, {4096, 4096, 4096});
  for (const int64_t offset : {0, 4608, 9216}) {
    frames.push_back(g.get(4096));
    EXPECT_EQ(frames.back()->offset, offset);
  }
  for (Block* frame : frames) g.allocator.free(frame);
}

TEST(L01_Allocator, PoolsAreSeparate) {
  Fixture f;
  f.allocator.free(f.get(5 * kMiB));  // 20 MiB of the large pool are free now
  Block* small = f.get(kMiB);         // but a small request does not take from there
  EXPECT_TRUE(small->segment->small);
  EXPECT_EQ(f.meter.reserved(), 22 * kMiB);
  f.allocator.free(small);
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
  for (size_t i = 0; i < blocks.size(); ++i)  // nobody wrote over anybody
    for (int64_t at = 0; at < blocks[i]->requested; ++at) ASSERT_EQ(blocks[i]->data()[at], char(i + 1));
  for (Block* b : blocks) allocator.free(b);
}

// 10,000 random requests, their decisions recorded; the invariants are checked against a model that knows
// only which blocks are alive and what was written into them.
std::vector<std::array<int64_t, 3>> random_run(uint32_t seed, bool expandable = false) {
  Fixture f;
  f.allocator.set_expandable(expandable);
  std::mt19937 random(seed);
  std::vector<Block*> live;
  std::vector<std::array<int64_t, 3>> decisions;
  int64_t requested = 0;
  for (int i = 0; i < 10'000; ++i) {
    if (live.empty() || (live.size() < 60 && random() % 2 == 0)) {
      const int64_t magnitude = int64_t(1) << (random() % 25);
      const int64_t bytes = int64_t(random()) % magnitude;
      Block* b = f.allocator.allocate(bytes, Kind(random() % kKinds), "random");
      decisions.push_back({b->segment->serial, b->offset, b->size});
      for (const Block* other : live)
        EXPECT_TRUE(other->segment != b->segment || b->offset + b->size <= other->offset ||
                    other->offset + other->size <= b->offset)
            << "request " << i << " overlaps";
      if (bytes > 0) b->data()[0] = b->data()[bytes - 1] = char(bytes % 251);
      live.push_back(b);
      requested += bytes;
    } else {
      const size_t which = random() % live.size();
      Block* b = live[which];
      if (b->requested > 0) {
        EXPECT_EQ(b->data()[0], char(b->requested % 251));
        EXPECT_EQ(b->data()[b->requested - 1], char(b->requested % 251));
      }
      if (random() % 4 == 0) f.allocator.change_kind(b, Kind(random() % kKinds));
      requested -= b->requested;
      f.allocator.free(b);
      live[which] = live.back();
      live.pop_back();
    }
    if (random() % 500 == 0) f.allocator.empty_cache();
    if (i % 10 == 0) expect_consistent(f.allocator);
    EXPECT_EQ(f.meter.now().allocated() - f.meter.now().rounding, requested);
    if (testing::Test::HasFailure()) break;
  }
  for (Block* b : live) f.allocator.free(b);
  f.allocator.empty_cache();
  EXPECT_EQ(f.meter.now(), Usage{});
  EXPECT_EQ(f.meter.reserved(), 0);
  EXPECT_EQ(f.source->left, int64_t(4) << 30);
  EXPECT_EQ(f.source->misused, 0);
  return decisions;
}

TEST(L01_Allocator, RandomUseKeepsTheInvariantsAndIsRepeatable) {
  const auto decisions = random_run(1);
  EXPECT_GT(decisions.size(), 4000u);
  EXPECT_EQ(decisions, random_run(1));
  EXPECT_NE(decisions, random_run(2));
}

TEST(L05_Expandable, RandomUseKeepsTheInvariantsAndIsRepeatable) {
  const auto decisions = random_run(1, true);
  EXPECT_EQ(decisions, random_run(1, true));
  EXPECT_NE(decisions, random_run(1, false));
}

}  // namespace
}  // namespace gradus
