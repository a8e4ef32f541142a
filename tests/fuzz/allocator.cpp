// The allocator: random requests to two allocators, one with memory of the host and one with addresses only.
// After every operation their invariants hold, both have made the same decisions, and blocks keep their data.
#include <deque>

#include "tests/fuzz/fuzz.h"
#include "tests/memory/allocator_fixture.h"

namespace gradus::fuzz {

std::string sample(Rng& rng) { return random_bytes(rng, 200); }

namespace {

struct Live {
  Block *host, *meta;
  char mark;  // the value of the host block's first and last byte
};

class Pair {
 public:
  Pair() : host_(INT64_MAX), meta_(meta_source(), meta_meter_) {}
  ~Pair() {
    while (!live_.empty()) free(0);
    both([](Allocator& a) { a.empty_cache(); });
    compare();
    EXPECT_EQ(host_.meter.reserved(), 0) << "all blocks are free, but memory is still reserved";
  }

  void step(Choices& choices) {
    switch (choices.between(0, 11)) {
      case 0: both([&](Allocator& a) { a.empty_cache(); }); break;
      case 1: {
        const bool on = choices.yes();
        both([&](Allocator& a) { a.set_expandable(on); });
        break;
      }
      case 2: {
        const int64_t budget = choices.between(0, 3) ? 0 : choices.between(1, 200) << 20;
        both([&](Allocator& a) { a.set_budget(budget); });
        break;
      }
      case 3:
      case 4:
      case 5:
      case 6:
        if (!live_.empty()) free(size_t(choices.between(0, int64_t(live_.size()) - 1)));
        break;
      case 7:
        if (!live_.empty()) {
          const Live& l = live_[size_t(choices.between(0, int64_t(live_.size()) - 1))];
          const Kind kind = Kind(choices.between(0, kKinds - 1));
          host_.allocator.change_kind(l.host, kind), meta_.change_kind(l.meta, kind);
        }
        break;
      default: allocate(choices);
    }
    compare();
  }

 private:
  template <class F>
  void both(const F& f) {
    f(host_.allocator), f(meta_);
  }

  void allocate(Choices& choices) {
    static constexpr int64_t kEdges[] = {0,       512,     1024,    2048,    4096,     8192,
                                         1 << 16, 1 << 17, 1 << 20, 2 << 20, 10 << 20, 20 << 20};
    const int64_t most = choices.one_of(kEdges);
    const int64_t bytes =
        choices.yes() ? std::max<int64_t>(0, most + choices.between(-2, 2) * 256 + choices.between(-1, 1))
                      : choices.between(0, most);
    const Kind kind = Kind(choices.between(0, kKinds - 1));
    const auto ask = [&](Allocator& a) -> Block* {
      try {
        return a.allocate(bytes, kind, "block", {bytes});
      } catch (const OutOfMemory&) {
        return nullptr;
      }
    };
    const Live l{ask(host_.allocator), ask(meta_), char(choices.between(1, 100))};
    ASSERT_EQ(l.host == nullptr, l.meta == nullptr) << "only one is out of memory, for " << bytes << " bytes";
    if (!l.host) return;
    ASSERT_TRUE(l.host->segment->serial == l.meta->segment->serial && l.host->offset == l.meta->offset &&
                l.host->size == l.meta->size)
        << bytes << " bytes: segment " << l.host->segment->serial << ", " << l.meta->segment->serial
        << " on meta; " << l.host->offset << "+" << l.host->size << ", " << l.meta->offset << "+"
        << l.meta->size << " on meta";
    if (bytes > 0) l.host->data()[0] = l.host->data()[bytes - 1] = l.mark;
    live_.push_back(l);
  }

  void free(size_t i) {
    const Live l = live_[i];
    live_.erase(live_.begin() + int64_t(i));
    const int64_t bytes = l.host->requested;
    EXPECT_TRUE(bytes == 0 || (l.host->data()[0] == l.mark && l.host->data()[bytes - 1] == l.mark))
        << "overwritten";
    host_.allocator.free(l.host), meta_.free(l.meta);
  }

  void compare() {
    both(expect_consistent);
    EXPECT_EQ(host_.meter.now(), meta_meter_.now());
    EXPECT_EQ(host_.meter.at_peak(), meta_meter_.at_peak());
    EXPECT_EQ(host_.meter.reserved(), meta_meter_.reserved());
    EXPECT_EQ(host_.meter.device_requests(), meta_meter_.device_requests());
    EXPECT_EQ(host_.source->misused, 0) << "pages must be unmapped in the way in which they were mapped";
  }

  Fixture host_;
  Meter meta_meter_;
  Allocator meta_;
  std::deque<Live> live_;
};

}  // namespace
}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  gradus::fuzz::Choices choices(bytes, size);
  gradus::fuzz::Pair pair;
  while (choices.left()) pair.step(choices);
  return 0;
}
