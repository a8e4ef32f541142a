#include "lessons/05_allocator/drawing.h"

#include <map>

#include "src/core/table.h"

namespace gradus {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;

void draw_segments(std::ostream& out, const Allocator& allocator) {
  for (const auto& [serial, segment] : allocator.segments()) {
    const int64_t unit = segment.small ? 64 * kKiB : kMiB;
    const auto characters = [unit](int64_t bytes) { return size_t((bytes + unit / 2) / unit); };
    std::string line;
    for (const Block* b = segment.first; b; b = b->next) {
      if (!b->mapped) continue;
      const size_t all = std::max<size_t>(characters(b->size), 1);
      const size_t asked = b->free ? 0 : std::max<size_t>(characters(b->requested), 1);
      line += std::string(asked, b->free ? ' ' : b->name[0]) + std::string(all - asked, b->free ? '.' : '-');
    }
    out << "    " << (segment.small ? "small" : "large") << " [" << line << "] " << bytes_text(segment.bytes)
        << "\n";
  }
}

namespace {

// An allocator, and the blocks of the example by name.
struct Example {
  explicit Example(std::ostream& o) : out(o) {}
  ~Example() {
    for (const auto& [name, block] : blocks) allocator.free(block);
  }
  void allocate(const std::string& name, int64_t bytes, const std::string& why) {
    blocks[name] = allocator.allocate(bytes, Kind::Other, name);
    show("allocate " + name + ", " + bytes_text(bytes), why);
  }
  void free(const std::string& names, const std::string& why) {
    for (const char name : names) {
      allocator.free(blocks.at({name}));
      blocks.erase({name});
    }
    show("free " + names, why);
  }
  void show(const std::string& what, const std::string& why) {
    out << "  " << what << ": " << why << "; allocated " << bytes_text(meter.now().allocated())
        << ", reserved " << bytes_text(meter.reserved()) << "\n";
    draw_segments(out, allocator);
  }

  std::ostream& out;
  Meter meter;
  Allocator allocator{meta_source(), meter};
  std::map<std::string, Block*> blocks;
};

}  // namespace

void draw_example(std::ostream& out) {
  out << "One character is 64 KiB in the small pool and 1 MiB in the large pool; each block has at least "
         "one.\n"
         "'-' is rounding, '.' is free memory.\n";
  Example e(out);
  e.allocate("a", 700 * kKiB, "small pool (at most 1 MiB), new segment of 2 MiB");
  e.allocate("b", 700, "rounded up to 1024 bytes, split from the free block");
  e.allocate("c", 3 * kMiB, "large pool (more than 1 MiB), new segment of 20 MiB");
  e.allocate("d", 5 * kMiB, "split from the free block");
  e.allocate("e", 4 * kMiB, "split from the free block");
  e.free("ce", "both stay in the cache; e merges with the free block after it");
  e.allocate("f", 2 * kMiB, "the best fit is the block of c; the remaining 1 MiB is not split off");
  e.allocate("g", 14 * kMiB, "no free block is large enough, so a segment of its own");
  e.free("abfg", "all blocks stay in the cache, nothing returns to the device");
  e.allocator.empty_cache();
  e.show("empty the cache", "wholly free segments return to the device; d keeps its segment");

  out << "\n  With expandable segments a pool is one segment that grows in pages of 20 MiB (small pool: 2 "
         "MiB):\n";
  Example grows(out);
  grows.allocator.set_expandable(true);
  grows.allocate("h", 15 * kMiB, "one page");
  grows.allocate("i", 14 * kMiB, "the free block at the end and one new page");
  grows.free("hi", "pages of two device allocations merge");
  grows.allocate("j", 36 * kMiB, "larger than every earlier block, but no new page");
}

}  // namespace gradus
