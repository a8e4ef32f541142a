// What the allocator's tests share: a device of a given size, and the invariants.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "src/memory/allocator.h"

namespace gradus {

constexpr int64_t kMiB = 1 << 20;

inline void PrintTo(const Usage& usage, std::ostream* out) {  // in messages of GoogleTest
  for (int k = 0; k < kKinds; ++k)
    if (usage.by_kind[k] != 0) *out << name_of(Kind(k)) << " " << usage.by_kind[k] << ", ";
  *out << "rounding " << usage.rounding;
}

// A device with a fixed number of bytes. Its "memory" is the host's, so that blocks can be written to.
// `misused` counts pages that were mapped twice, or unmapped differently than they were mapped; `addresses`
// counts the reserved addresses.
struct SmallDevice : Source {
  explicit SmallDevice(int64_t capacity) : left(capacity) {}
  void* acquire(int64_t bytes) override {
    if (bytes > left) return nullptr;
    left -= bytes;
    return std::aligned_alloc(64, size_t(bytes));
  }
  void release(void* p, int64_t bytes) noexcept override {
    left += bytes;
    std::free(p);
  }
  void* reserve(int64_t bytes) override {
    void* const p = host->reserve(bytes);
    if (p) addresses += bytes;
    return p;
  }
  void unreserve(void* p, int64_t bytes) noexcept override {
    addresses -= bytes;
    host->unreserve(p, bytes);
  }
  bool map(void* page, int64_t bytes) override {
    if (bytes > left) return false;
    left -= bytes;
    misused += !pages.emplace(page, bytes).second;
    return host->map(page, bytes);
  }
  void unmap(void* page, int64_t bytes) noexcept override {
    left += bytes;
    misused += pages.erase({page, bytes}) == 0;
    host->unmap(page, bytes);
  }
  void copy_in(void* to, const void* from, int64_t bytes) override { host->copy_in(to, from, bytes); }
  void copy_out(void* to, const void* from, int64_t bytes) override { host->copy_out(to, from, bytes); }
  bool on_host() const override { return true; }
  int64_t left, misused = 0, addresses = 0;
  std::unique_ptr<Source> host = host_source();
  std::set<std::pair<void*, int64_t>> pages;
};

struct Fixture {
  explicit Fixture(int64_t capacity = int64_t(4) << 30)
      : source(new SmallDevice(capacity)), allocator(std::unique_ptr<Source>(source), meter) {
    allocator.take_names_from(ranges);
  }
  Block* get(int64_t bytes, const char* name = "block") {
    return allocator.allocate(bytes, Kind::Other, name, {bytes});
  }
  Meter meter;
  Ranges ranges;
  SmallDevice* source;
  Allocator allocator;
};

using Place = std::pair<int64_t, int64_t>;  // segment serial, offset
inline Place place_of(const Block* b) { return {b->segment->serial, b->offset}; }

// Everything that must hold at any time, computed from the segments alone.
inline void expect_consistent(const Allocator& allocator) {
  Usage expected;
  int64_t reserved = 0, last_serial = -1;
  for (const auto& [serial, segment] : allocator.segments()) {
    ASSERT_GT(serial, last_serial);
    last_serial = serial;
    reserved += segment.bytes;
    int64_t offset = 0, mapped = 0;
    const Block* prev = nullptr;
    for (const Block* b = segment.first; b; prev = b, b = b->next) {
      ASSERT_EQ(b->segment, &segment);
      ASSERT_EQ(b->offset, offset) << "blocks must tile the segment";
      ASSERT_GT(b->size, 0);
      ASSERT_EQ(b->size % 512, 0);
      ASSERT_EQ(b->prev, prev);
      ASSERT_FALSE(prev && prev->free && b->free && prev->mapped == b->mapped)
          << "free neighbours must have been merged";
      offset += b->size;
      if (b->mapped) mapped += b->size;
      ASSERT_TRUE(b->mapped || (b->free && b->offset % segment.page == 0 && b->size % segment.page == 0));
      if (b->free) continue;
      ASSERT_LE(b->requested, b->size);
      expected.by_kind[int(b->kind)] += b->requested;
      expected.rounding += b->size - b->requested;
    }
    ASSERT_EQ(mapped, segment.bytes);
    ASSERT_EQ(offset, segment.addresses);
  }
  const Meter& meter = allocator.meter();
  EXPECT_EQ(meter.reserved(), reserved);
  EXPECT_EQ(meter.now().by_kind, expected.by_kind);
  EXPECT_EQ(meter.now().rounding, expected.rounding);
  EXPECT_GE(meter.at_peak().allocated(), meter.now().allocated());
  EXPECT_GE(meter.peak_reserved(), meter.reserved());
}

}  // namespace gradus
