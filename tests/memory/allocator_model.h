// A second implementation of the allocator's rules, as simple as possible: vectors that are searched from the
// beginning and sorted after each change.
#pragma once
#include <algorithm>
#include <optional>

#include "tests/memory/allocator_fixture.h"

namespace gradus {

inline int64_t ceiling(int64_t n, int64_t unit) {
  const int64_t over = n % unit;
  return over == 0 ? n : n + unit - over;
}

struct Piece {
  int64_t offset, size;
  bool free, mapped;
  bool operator==(const Piece&) const = default;
};
inline void PrintTo(const Piece& p, std::ostream* out) {
  *out << (p.free ? "free " : "used ") << (p.mapped ? "" : "(hole) ") << p.offset << "+" << p.size;
}

struct Tiled {
  int64_t serial;
  bool small;
  int64_t page;  // 0: not expandable
  std::vector<Piece> pieces;
  bool operator==(const Tiled&) const = default;
};
inline void PrintTo(const Tiled& t, std::ostream* out) {
  *out << "segment " << t.serial << ": " << testing::PrintToString(t.pieces);
}

class Model {
 public:
  std::vector<Tiled> segments;
  bool expandable = false;
  int64_t budget = 0, capacity = 0;  // 0: no limit
  int64_t requests = 0;              // device allocations: segments and pages

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

  // Segments are in the order of their serials and pieces in that of their offsets, so the first of equally
  // good ones is the right one.
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
    ++requests;
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
    requests += bytes / s.page;
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

}  // namespace gradus
