// The allocator against a second implementation of its rules, as naive as can be: vectors, searched from the
// beginning, and put in order again after each change. Every block of every segment must be the same after
// each of some thousand random operations.
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

int64_t ceiling(int64_t n, int64_t unit) {
  const int64_t over = n % unit;
  return over == 0 ? n : n + unit - over;
}

struct Piece {
  int64_t offset, size;
  bool free, mapped;
  bool operator==(const Piece&) const = default;
};
void PrintTo(const Piece& p, std::ostream* out) {
  *out << (p.free ? "free " : "used ") << (p.mapped ? "" : "(hole) ") << p.offset << "+" << p.size;
}

struct Tiled {
  int64_t serial;
  bool small;
  int64_t page;  // 0: not expandable
  std::vector<Piece> pieces;
  bool operator==(const Tiled&) const = default;
};
void PrintTo(const Tiled& t, std::ostream* out) {
  *out << "segment " << t.serial << ": " << testing::PrintToString(t.pieces);
}

class Model {
 public:
  std::vector<Tiled> segments;
  bool expandable = false;
  int64_t budget = 0, capacity = 0;  // 0: no bound

  int64_t reserved() const {
    int64_t sum = 0;
    for (const Tiled& s : segments)
      for (const Piece& p : s.pieces) sum += p.mapped ? p.size : 0;
    return sum;
  }

  struct Place {
    int64_t serial, offset, size;
  };
  std::optional<Place> allocate(int64_t bytes) {
    const int64_t size = std::max<int64_t>(512, ceiling(bytes, 512));
    const bool small = size <= kMiB;
    Piece* best = best_fit(size, small);
    for (int attempt = 0; !best && attempt < 2; ++attempt) {
      if (attempt == 1) empty();
      if (expandable ? add_pages(size, small) : add_segment(size, small)) best = best_fit(size, small);
    }
    if (!best) empty();
    if (!best) return {};
    Tiled& s = owner(best);
    const int64_t rest = best->size - size;
    const bool split = small || s.page > 0 ? rest >= 512 : rest > kMiB;
    best->free = false;
    const Place place{s.serial, best->offset, split ? size : best->size};
    if (split) {
      best->size = size;
      s.pieces.insert(s.pieces.begin() + (best - s.pieces.data()) + 1,
                      Piece{place.offset + size, rest, true, true});
    }
    return place;
  }

  void free(const Place& place) {
    for (Tiled& s : segments)
      for (Piece& p : s.pieces)
        if (s.serial == place.serial && p.offset == place.offset) p.free = true;
    join();
  }

  void empty() {
    for (Tiled& s : segments) {
      if (s.page == 0) continue;
      std::vector<Piece> cut;
      for (const Piece& p : s.pieces) {
        const int64_t end = p.offset + p.size, first = ceiling(p.offset, s.page), last = end - end % s.page;
        if (!p.free || !p.mapped || first >= last) {
          cut.push_back(p);
          continue;
        }
        if (p.offset < first) cut.push_back({p.offset, first - p.offset, true, true});
        cut.push_back({first, last - first, true, false});
        if (last < end) cut.push_back({last, end - last, true, true});
      }
      s.pieces = cut;
    }
    join();
    std::erase_if(segments, [](const Tiled& s) { return s.pieces.size() == 1 && s.pieces[0].free; });
  }

 private:
  Tiled& owner(const Piece* p) {
    for (Tiled& s : segments)
      if (p >= s.pieces.data() && p < s.pieces.data() + s.pieces.size()) return s;
    std::abort();
  }

  // Segments stand in the order of their serials and pieces in that of their offsets: the first of equal
  // ones is the right one.
  Piece* best_fit(int64_t size, bool small) {
    Piece* best = nullptr;
    for (Tiled& s : segments)
      for (Piece& p : s.pieces)
        if (s.small == small && p.free && p.mapped && p.size >= size && (!best || p.size < best->size))
          best = &p;
    return best;
  }

  bool can_have(int64_t more) const {
    return (budget == 0 || reserved() + more <= budget) && (capacity == 0 || reserved() + more <= capacity);
  }

  bool add_segment(int64_t size, bool small) {
    const int64_t bytes = small ? 2 * kMiB : size < 10 * kMiB ? 20 * kMiB : ceiling(size, 2 * kMiB);
    if (!can_have(bytes)) return false;
    segments.push_back({next_serial_++, small, 0, {{0, bytes, true, true}}});
    return true;
  }

  bool add_pages(int64_t size, bool small) {
    for (Tiled& s : segments)
      for (size_t i = 0; i < s.pieces.size(); ++i) {
        const int64_t before = i > 0 && s.pieces[i - 1].free ? s.pieces[i - 1].size : 0;
        if (s.small == small && !s.pieces[i].mapped && before + s.pieces[i].size >= size)
          return fill(s, i, ceiling(size - before, s.page));
      }
    const int64_t page = small ? 2 * kMiB : 20 * kMiB;
    const int64_t addresses = ceiling(std::max(size, int64_t(1) << 40), page);
    segments.push_back({next_serial_++, small, page, {{0, addresses, true, false}}});
    return fill(segments.back(), 0, ceiling(size, page));
  }

  bool fill(Tiled& s, size_t hole, int64_t bytes) {
    if (!can_have(bytes)) return false;
    Piece& p = s.pieces[hole];
    const Piece rest{p.offset + bytes, p.size - bytes, true, false};
    p = {p.offset, bytes, true, true};
    if (rest.size > 0) s.pieces.insert(s.pieces.begin() + int64_t(hole) + 1, rest);
    join();
    return true;
  }

  void join() {
    for (Tiled& s : segments)
      for (size_t i = 1; i < s.pieces.size();) {
        Piece &left = s.pieces[i - 1], &right = s.pieces[i];
        if (!left.free || !right.free || left.mapped != right.mapped) {
          ++i;
          continue;
        }
        left.size += right.size;
        s.pieces.erase(s.pieces.begin() + int64_t(i));
      }
  }

  int64_t next_serial_ = 0;
};

std::vector<Tiled> tiles_of(const Allocator& allocator) {
  std::vector<Tiled> result;
  for (const auto& [serial, segment] : allocator.segments()) {
    result.push_back({serial, segment.small, segment.page, {}});
    for (const Block* b = segment.first; b; b = b->next)
      result.back().pieces.push_back({b->offset, b->size, b->free, b->mapped});
  }
  return result;
}

// Sizes of all magnitudes, every second one at a threshold of the rules.
int64_t random_size(std::mt19937& random) {
  constexpr int64_t kThresholds[] = {0, 512, kMiB, 2 * kMiB, 8 * kMiB, 10 * kMiB, 19 * kMiB, 20 * kMiB};
  if (random() % 2 == 0) return int64_t(random()) % (int64_t(1) << random() % 26);
  constexpr int64_t kBeside[] = {-1024, -513, -512, -1, 0, 1, 512, 513};
  return std::max<int64_t>(0, kThresholds[random() % 8] + kBeside[random() % 8]);
}

enum class Expand { Never, Always, Sometimes };

struct Run {
  Run(std::unique_ptr<Source> source, int64_t capacity) : allocator(std::move(source), meter) {
    model.capacity = capacity;
  }
  ~Run() {
    for (const auto& [block, place] : live) allocator.free(block);
  }

  void allocate(int64_t bytes, Kind kind) {
    const auto place = model.allocate(bytes);
    try {
      Block* b = allocator.allocate(bytes, kind, "random");
      live.emplace_back(b, place.value_or(Model::Place{-1, -1, -1}));
    } catch (const OutOfMemory&) {
      ++refused;
      EXPECT_FALSE(place) << bytes << " bytes have room";
      return;
    }
    ASSERT_TRUE(place) << bytes << " bytes have no room";
    const Block& b = *live.back().first;
    EXPECT_EQ(std::tuple(b.segment->serial, b.offset, b.size),
              std::tuple(place->serial, place->offset, place->size));
    usage.by_kind[int(kind)] += bytes;
    usage.rounding += place->size - bytes;
    if (usage.allocated() > peak.allocated()) peak = usage;
  }

  void free_last() {
    const auto [block, place] = live.back();
    live.pop_back();
    usage.by_kind[int(block->kind)] -= block->requested;
    usage.rounding -= place.size - block->requested;
    allocator.free(block);
    model.free(place);
  }

  void change_last(Kind kind) {
    Block* block = live.back().first;
    usage.by_kind[int(block->kind)] -= block->requested;
    usage.by_kind[int(kind)] += block->requested;
    allocator.change_kind(block, kind);
  }

  void compare() {
    ASSERT_EQ(tiles_of(allocator), model.segments);
    ASSERT_EQ(meter.reserved(), model.reserved());
    ASSERT_EQ(meter.now(), usage);
    ASSERT_EQ(meter.at_peak(), peak);
  }

  Meter meter;
  Allocator allocator;
  Model model;
  std::vector<std::pair<Block*, Model::Place>> live;
  Usage usage, peak;
  int64_t refused = 0;
};

void random_use(Run& run, Expand expand, uint32_t seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 3000; ++i) {
    if (expand == Expand::Always || (expand == Expand::Sometimes && random() % 100 == 0))
      run.allocator.set_expandable(run.model.expandable = !run.model.expandable || expand == Expand::Always);
    if (random() % 200 == 0) {
      const int64_t budget = int64_t(random() % 4) * 100 * kMiB;
      run.allocator.set_budget(run.model.budget = budget > 0 ? budget : 500 * kMiB);
    }
    const uint32_t what = random() % 40;
    if (what == 0) {
      run.allocator.empty_cache();
      run.model.empty();
    } else if (run.live.size() < 50 && what < 21) {
      run.allocate(random_size(random), Kind(random() % kKinds));
    } else if (!run.live.empty()) {
      std::swap(run.live[random() % run.live.size()], run.live.back());
      what % 5 == 0 ? run.change_last(Kind(random() % kKinds)) : run.free_last();
    }
    run.compare();
    if (testing::Test::HasFailure()) FAIL() << "operation " << i << ", seed " << seed;
  }
  EXPECT_GT(run.refused, 20) << "the bounds should press";
}

void compare_with_the_model(Expand expand) {
  constexpr int64_t kCapacity = 333 * kMiB;
  Run cpu(host_source(), 0), meta(meta_source(), 0),
      full(std::make_unique<SmallDevice>(kCapacity), kCapacity);
  uint32_t seed = 0;
  for (Run* run : {&cpu, &meta, &full}) {
    random_use(*run, expand, ++seed);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(L01_AllocatorModel, EveryDecisionIsTheModels) { compare_with_the_model(Expand::Never); }
TEST(L05_AllocatorModel, EveryDecisionIsTheModelsOnPages) { compare_with_the_model(Expand::Always); }
TEST(L05_AllocatorModel, EveryDecisionIsTheModelsOnBoth) { compare_with_the_model(Expand::Sometimes); }

}  // namespace
}  // namespace gradus
