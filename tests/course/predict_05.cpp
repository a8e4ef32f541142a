// The questions of exercise 05.5: which segments are allocated after a warm-up with the longest batches; they
// are counted by running the student's own workload on meta (lessons/05_allocator/workload.h). And of 05.1:
// the memory after a few allocations.
#include <cmath>

#include "lessons/05_allocator/workload.h"
#include "tests/course/predict.h"

namespace gradus::predict {

constexpr int64_t kSteps = 200;
constexpr uint64_t kWorkloads = 6;  // each with its own seed

static Workload own_workload(const std::string& student) {
  Own own(student, "05.5");
  const int64_t layers = own.between(6, 12);
  const auto [heads, batch] = std::vector<std::pair<int64_t, int64_t>>{
      {6, 2}, {6, 3},  {6, 4},  {6, 6},  {8, 2},  {8, 3},  {8, 4},
      {8, 6}, {10, 2}, {10, 4}, {10, 6}, {12, 3}, {12, 4}, {12, 6}}[size_t(own.between(0, 13))];
  Workload workload{transformer_config("gpt2"), batch, own.between(32, 44), own.between(180, 260), 1024, 0.7};
  workload.model.layers = layers, workload.model.heads = heads, workload.model.channels = 64 * heads;
  return workload;
}

// The largest T up to workload.longest for which a tensor of this shape comes from the small pool.
static double longest_in_small_pool(const Workload& workload, const std::function<Shape(int64_t T)>& shape) {
  Context meta("meta");
  int64_t T = 0, next = 1;
  for (; next <= workload.longest; T = next++) {
    Allocator& allocator = meta.device.allocator();
    Block* block = allocator.allocate(shape(next).numel() * size_of(DType::F32), Kind::Other, "probe");
    const bool small = block->segment->small;
    allocator.free(block);
    if (!small) break;
  }
  return double(T);
}

struct Later {  // segments allocated after the warm-up, the largest count of all workloads
  int64_t small = 0, large = 0;
};
static Later allocated_later(const Workload& workload, int64_t third) {
  Later most;
  for (uint64_t seed = 1; seed <= kWorkloads; ++seed) {
    Context meta("meta");
    const WorkloadRun run =
        run_workload(workload, {.name = "warmed up", .warmed_up = true, .third = third}, kSteps, seed);
    Later later;  // none is returned to the device, so the latest segments have the highest serials
    const std::map<int64_t, Segment>& segments = meta.device.allocator().segments();
    for (auto s = std::prev(segments.end(), run.late_allocations); s != segments.end(); ++s)
      ++(s->second.small ? later.small : later.large);
    most = {std::max(most.small, later.small), std::max(most.large, later.large)};
  }
  return most;
}

static Judge third_batch(const Workload& workload) {
  return [=](double answer) -> Verdict {
    if (answer != std::floor(answer) || answer < double(workload.shortest) ||
        answer > double(workload.longest))
      return {Verdict::Wrong, "no batch of the workload has this length"};
    const Later later = allocated_later(workload, int64_t(answer));
    if (later.small + later.large == 0) return {Verdict::Right, ""};
    return {Verdict::Wrong, "with this third batch, segments are still allocated later"};
  };
}

// Exercise 05.1: allocations by an empty allocator, in KiB, MiB, MiB, half MiB and bytes.
struct Sizes {
  int64_t a, b, c, d, e;
};

static Sizes own_sizes(const std::string& student) {
  Own own(student, "05.1");
  const int64_t b = own.between(5, 8);
  return {own.between(300, 900), b, own.between(10, 16), 2 * b - own.of({1, 4}), own.between(600, 2000)};
}

// Reserved and allocated bytes at the end.
static std::pair<double, double> left_by(const Sizes& r) {
  Meter meter;
  Allocator allocator(meta_source(), meter);
  const auto allocate = [&](int64_t bytes, const char* name) {
    return allocator.allocate(bytes, Kind::Other, name);
  };
  Block* const a = allocate(r.a << 10, "a");
  Block* const b = allocate(r.b << 20, "b");
  Block* const c = allocate(r.c << 20, "c");
  allocator.free(b);
  Block* const d = allocate(r.d << 19, "d");
  Block* const e = allocate(r.e, "e");
  const std::pair<double, double> left(double(meter.reserved()), double(meter.now().allocated()));
  for (Block* block : {a, c, d, e}) allocator.free(block);
  return left;
}

static Quiz quiz(const std::string& student) {
  const Sizes r = own_sizes(student);
  const Workload s = own_workload(student);
  const TransformerConfig& c = s.model;
  std::ostringstream setting, steps;
  setting << "Your workload: a GPT-2 of " << c.layers << " layers, " << c.heads << " heads and " << c.channels
          << " channels, in fp32, on batches of " << s.batch << " texts of " << s.shortest << " to "
          << s.longest << " tokens (T is log-normal with median " << s.median
          << "; the standard deviation of log T is " << s.spread
          << "). It is warmed up: the first two batches have " << s.longest << " tokens. It runs " << kSteps
          << " steps with each of " << kWorkloads << " seeds; the largest count of these runs is asked for.";
  steps << "Your example begins with an empty allocator: allocate a, " << r.a << " KiB; allocate b, " << r.b
        << " MiB; allocate c, " << r.c << " MiB; free b; allocate d, " << 0.5 * double(r.d)
        << " MiB; allocate e, " << r.e << " bytes. How many bytes are reserved at the end?";
  const std::string id = "05.5";
  return {
      setting.str(),
      {{id, "hidden_T",
        "what is the largest T for which a tensor (batch, T, channels) comes from the small pool?",
        measured([=] {
          return longest_in_small_pool(s, [&](int64_t T) { return Shape{s.batch, T, c.channels}; });
        })},
       {id, "probabilities_T",
        "what is the largest T for which attention probabilities (batch, heads, T, T) come from it?",
        measured([=] {
          return longest_in_small_pool(s, [&](int64_t T) { return Shape{s.batch, c.heads, T, T}; });
        })},
       {id, "large_later", "how many segments of the large pool are allocated after the warm-up?",
        measured([=] { return double(allocated_later(s, 0).large); })},
       {id, "small_later",
        "how many segments of the small pool are allocated after the warm-up? (right within 10 %)",
        measured([=] { return double(allocated_later(s, 0).small); }, 0.1)},
       {id, "third", "how many tokens must the third batch have, so that no segment is allocated after it?",
        third_batch(s)},
       {"05.1", "reserved", steps.str(), measured([r] { return left_by(r).first; })},
       {"05.1", "allocated", "how many bytes are allocated at the end, with rounding?",
        measured([r] { return left_by(r).second; })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "05", gradus::predict::quiz); }
