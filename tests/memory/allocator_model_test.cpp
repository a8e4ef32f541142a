// Compares the allocator with its model: every block of every segment, the counts of its meter and the bytes
// left on its device must agree after each of some thousand random operations, and blocks must keep their
// contents.
#include <gtest/gtest.h>

#include <random>

#include "src/memory/cuda.h"
#include "tests/memory/allocator_model.h"

namespace gradus {
namespace {

std::vector<Tiled> tiles_of(const Allocator& allocator) {
  std::vector<Tiled> result;
  for (const auto& [serial, segment] : allocator.segments()) {
    result.push_back({serial, segment.small, segment.page, {}});
    for (const Block* b = segment.first; b; b = b->next)
      result.back().pieces.push_back({b->offset, b->size, b->free, b->mapped});
  }
  return result;
}

// Sizes of all magnitudes; about half of them are near a threshold of the rules.
int64_t random_size(std::mt19937& random) {
  constexpr int64_t kThresholds[] = {0, 512, kMiB, 2 * kMiB, 8 * kMiB, 10 * kMiB, 19 * kMiB, 20 * kMiB};
  if (random() % 2 == 0) return int64_t(random()) % (int64_t(1) << random() % 26);
  constexpr int64_t kBeside[] = {-1024, -513, -512, -1, 0, 1, 512, 513};
  return std::max<int64_t>(0, kThresholds[random() % 8] + kBeside[random() % 8]);
}

enum class Expand { Never, Always, Sometimes };

struct Run {
  struct Live {
    Block* block;
    Model::Place place;
    char stamp;  // the value of its first and last byte
  };

  explicit Run(std::unique_ptr<Source> source) : allocator(std::move(source), meter) {}
  explicit Run(SmallDevice* small) : Run(std::unique_ptr<Source>(small)) {
    device = small;
    model.capacity = small->left;
  }
  ~Run() {
    for (const Live& l : live) allocator.free(l.block);
  }

  void allocate(int64_t bytes, Kind kind) {
    const auto place = model.allocate(bytes);
    Block* b = nullptr;
    try {
      b = allocator.allocate(bytes, kind, "random");
    } catch (const OutOfMemory&) {
      ++refused;
      EXPECT_FALSE(place) << bytes << " bytes fit, but the allocator failed";
      return;
    }
    live.push_back({b, place.value_or(Model::Place{-1, -1, -1}), char(++stamps)});
    ASSERT_TRUE(place) << bytes << " bytes do not fit, but the allocator succeeded";
    EXPECT_EQ(std::tuple(b->segment->serial, b->offset, b->size),
              std::tuple(place->serial, place->offset, place->size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b->data()) % 64, 0u);
    if (bytes > 0)
      for (char* at : {b->data(), b->data() + bytes - 1})
        allocator.source().copy_in(at, &live.back().stamp, 1);
    usage.by_kind[int(kind)] += bytes;
    usage.rounding += place->size - bytes;
    if (usage.allocated() > peak.allocated()) peak = usage;
  }

  void free_last() {
    const auto [block, place, stamp] = live.back();
    live.pop_back();
    if (allocator.source().has_data() && block->requested > 0)
      for (const char* at : {block->data(), block->data() + block->requested - 1}) {
        char found = 0;
        allocator.source().copy_out(&found, at, 1);
        EXPECT_EQ(found, stamp) << "first or last byte of a block of " << block->requested << " bytes";
      }
    usage.by_kind[int(block->kind)] -= block->requested;
    usage.rounding -= place.size - block->requested;
    allocator.free(block);
    model.free(place);
  }

  void change_last(Kind kind) {
    Block* block = live.back().block;
    usage.by_kind[int(block->kind)] -= block->requested;
    usage.by_kind[int(kind)] += block->requested;
    allocator.change_kind(block, kind);
  }

  void empty_cache() {
    allocator.empty_cache();
    model.empty();
  }

  void compare() {
    const int64_t reserved = model.reserved();
    peak_reserved = std::max(peak_reserved, reserved);
    ASSERT_EQ(tiles_of(allocator), model.segments);
    ASSERT_EQ(meter.reserved(), reserved);
    ASSERT_EQ(meter.peak_reserved(), peak_reserved);
    ASSERT_EQ(meter.device_requests(), model.requests);
    ASSERT_EQ(meter.now(), usage);
    ASSERT_EQ(meter.at_peak(), peak);
    ASSERT_NO_FATAL_FAILURE(expect_consistent(allocator));
    if (!device) return;
    ASSERT_EQ(device->left, model.capacity - reserved);
    ASSERT_EQ(device->misused, 0);
  }

  SmallDevice* device = nullptr;  // the source, if it is a SmallDevice
  Meter meter;
  Allocator allocator;
  Model model;
  std::vector<Live> live;
  Usage usage, peak;
  int64_t peak_reserved = 0, refused = 0;
  int stamps = 0;
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
      run.empty_cache();
    } else if (run.live.size() < 50 && what < 21) {
      run.allocate(random_size(random), Kind(random() % kKinds));
    } else if (!run.live.empty()) {
      std::swap(run.live[random() % run.live.size()], run.live.back());
      what % 5 == 0 ? run.change_last(Kind(random() % kKinds)) : run.free_last();
    }
    run.compare();
    if (testing::Test::HasFailure()) FAIL() << "operation " << i << ", seed " << seed;
  }
  EXPECT_GT(run.refused, 20) << "the test should reach the limits often";
  while (!run.live.empty()) run.free_last();
  run.empty_cache();
  run.compare();
  EXPECT_TRUE(run.allocator.segments().empty());
  EXPECT_TRUE(!run.device || run.device->addresses == 0) << "addresses were not released";
}

void compare_with_the_model(Expand expand) {
  std::vector<std::unique_ptr<Run>> runs;
  runs.push_back(std::make_unique<Run>(host_source()));
  runs.push_back(std::make_unique<Run>(meta_source()));
  runs.push_back(std::make_unique<Run>(new SmallDevice(333 * kMiB)));
#ifdef GRADUS_CUDA
  if (cuda_problem().empty()) runs.push_back(std::make_unique<Run>(cuda_source()));
#endif
  for (size_t i = 0; i < runs.size(); ++i) {
    random_use(*runs[i], expand, uint32_t(i + 1));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(L01_AllocatorModel, EveryDecisionIsTheModels) { compare_with_the_model(Expand::Never); }
TEST(L05_AllocatorModel, EveryDecisionIsTheModelsOnPages) { compare_with_the_model(Expand::Always); }
TEST(L05_AllocatorModel, EveryDecisionIsTheModelsOnBoth) { compare_with_the_model(Expand::Sometimes); }

}  // namespace
}  // namespace gradus
