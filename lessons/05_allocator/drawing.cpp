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

// An allocator, and the blocks that the example has, by name.
struct Example {
  explicit Example(std::ostream& o) : out(o) {}
  ~Example() {
    for (const auto& [name, block] : blocks) allocator.free(block);
  }
  void get(const std::string& name, int64_t bytes, const std::string& what_happens) {
    blocks[name] = allocator.allocate(bytes, Kind::Other, name);
    show("get " + name + ", " + bytes_text(bytes), what_happens);
  }
  void free(const std::string& names, const std::string& what_happens) {
    for (const char name : names) {
      allocator.free(blocks.at({name}));
      blocks.erase({name});
    }
    show("free " + names, what_happens);
  }
  void show(const std::string& what, const std::string& what_happens) {
    out << "  " << what << ": " << what_happens << "; " << bytes_text(meter.now().allocated()) << " of "
        << bytes_text(meter.reserved()) << " in use\n";
    draw_segments(out, allocator);
  }

  std::ostream& out;
  Meter meter;
  Allocator allocator{meta_source(), meter};
  std::map<std::string, Block*> blocks;
};

}  // namespace

void draw_example(std::ostream& out) {
  out << "What the allocator does. A character is 64 KiB in the small pool, 1 MiB in the large one; a block "
         "has at\n"
         "least one. '-': rounding, '.': free\n";
  Example e(out);
  e.get("a", 700 * kKiB, "up to 1 MiB, from the small pool, a segment of 2 MiB");
  e.get("b", 700, "rounded up to 1024 bytes, split off what is free");
  e.get("c", 3 * kMiB, "over 1 MiB, from the large pool, a segment of 20 MiB");
  e.get("d", 5 * kMiB, "split off what is free");
  e.get("e", 4 * kMiB, "again");
  e.free("ce", "kept; e merges with what is free behind it");
  e.get("f", 2 * kMiB, "the best fit is where c was; a rest of up to 1 MiB stays with it");
  e.get("g", 14 * kMiB, "nothing free is large enough: a segment of its own");
  e.free("abfg", "all of it is cached, nothing goes back to the device");
  e.allocator.empty_cache();
  e.show("empty the cache", "segments that are wholly free go back; d holds its own");

  out << "\n  With expandable segments a pool has one that grows, by pages of 20 MiB (small pool: 2):\n";
  Example grows(out);
  grows.allocator.set_expandable(true);
  grows.get("h", 15 * kMiB, "one page");
  grows.get("i", 14 * kMiB, "what is free at the end, and one page more");
  grows.free("hi", "what came in two requests merges");
  grows.get("j", 36 * kMiB, "larger than any before, it needs nothing new");
}

}  // namespace gradus
