// The questions of exercise 05.3: which blocks are missing after a warm-up with the longest batches, for the
// student's own stream, found by running it on meta (lessons/05_allocator/stream.h); and of 05.5: what a few
// requests leave.
#include <cmath>

#include "lessons/05_allocator/stream.h"
#include "tests/course/predict.h"

namespace gradus::predict {

constexpr int64_t kSteps = 200;
constexpr uint64_t kStreams = 6;  // with seeds of their own

static Stream own_stream(const std::string& student) {
  Own own(student, "05.3");
  const int64_t layers = own.between(6, 12);
  const auto [heads, batch] = std::vector<std::pair<int64_t, int64_t>>{
      {6, 2}, {6, 3},  {6, 4},  {6, 6},  {8, 2},  {8, 3},  {8, 4},
      {8, 6}, {10, 2}, {10, 4}, {10, 6}, {12, 3}, {12, 4}, {12, 6}}[size_t(own.between(0, 13))];
  Stream stream{transformer_config("gpt2"), batch, own.between(32, 44), own.between(180, 260), 1024, 0.7};
  stream.model.layers = layers, stream.model.heads = heads, stream.model.channels = 64 * heads;
  return stream;
}

// The longest T up to stream.longest for which a tensor of such a shape comes from the small pool.
static double longest_in_small_pool(const Stream& stream, const std::function<Shape(int64_t T)>& shape) {
  Context meta("meta");
  int64_t T = 0, next = 1;
  for (; next <= stream.longest; T = next++) {
    Allocator& allocator = meta.device.allocator();
    Block* block = allocator.allocate(shape(next).numel() * size_of(DType::F32), Kind::Other, "probe");
    const bool small = block->segment->small;
    allocator.free(block);
    if (!small) break;
  }
  return double(T);
}

struct Later {  // segments asked for after the warm-up, the most of all streams
  int64_t small = 0, large = 0;
};
static Later asked_later(const Stream& stream, int64_t third) {
  Later most;
  for (uint64_t seed = 1; seed <= kStreams; ++seed) {
    Context meta("meta");
    const StreamRun run =
        run_stream(stream, {.name = "warmed up", .warmed_up = true, .third = third}, kSteps, seed);
    Later later;  // none is given back, so those asked for last have the highest serials
    const std::map<int64_t, Segment>& segments = meta.device.allocator().segments();
    for (auto s = std::prev(segments.end(), run.late_requests); s != segments.end(); ++s)
      ++(s->second.small ? later.small : later.large);
    most = {std::max(most.small, later.small), std::max(most.large, later.large)};
  }
  return most;
}

static Judge third_batch(const Stream& stream) {
  return [=](double answer) -> Verdict {
    if (answer != std::floor(answer) || answer < double(stream.shortest) || answer > double(stream.longest))
      return {Verdict::Wrong, "no batch of the stream has this length"};
    const Later later = asked_later(stream, int64_t(answer));
    if (later.small + later.large == 0) return {Verdict::Right, ""};
    return {Verdict::Wrong, "with this third batch, segments are still asked for later"};
  };
}

// Exercise 05.5: requests to an empty allocator. Numbers of KiB, MiB, MiB, half MiB and bytes.
struct Requests {
  int64_t a, b, c, d, e;
};

static Requests own_requests(const std::string& student) {
  Own own(student, "05.5");
  const int64_t b = own.between(5, 8);
  return {own.between(300, 900), b, own.between(10, 16), 2 * b - own.of({1, 4}), own.between(600, 2000)};
}

// What they leave: reserved and allocated.
static std::pair<double, double> left_by(const Requests& r) {
  Meter meter;
  Allocator allocator(meta_source(), meter);
  const auto get = [&](int64_t bytes, const char* name) {
    return allocator.allocate(bytes, Kind::Other, name);
  };
  Block* const a = get(r.a << 10, "a");
  Block* const b = get(r.b << 20, "b");
  Block* const c = get(r.c << 20, "c");
  allocator.free(b);
  Block* const d = get(r.d << 19, "d");
  Block* const e = get(r.e, "e");
  const std::pair<double, double> left(double(meter.reserved()), double(meter.now().allocated()));
  for (Block* block : {a, c, d, e}) allocator.free(block);
  return left;
}

static Quiz quiz(const std::string& student) {
  const Requests r = own_requests(student);
  const Stream s = own_stream(student);
  const TransformerConfig& c = s.model;
  std::ostringstream setting, requests;
  setting << "Your stream: a GPT-2 of " << c.layers << " layers, " << c.heads << " heads and " << c.channels
          << " channels, in fp32, on batches of " << s.batch << " texts of " << s.shortest << " to "
          << s.longest << " tokens (log-normal, the median " << s.median << ", the deviation " << s.spread
          << "); " << kStreams << " streams of " << kSteps
          << " steps, of which the most counts. It is warmed up: the first two batches have " << s.longest
          << " tokens.";
  requests << "Your requests, to an empty allocator: get a, " << r.a << " KiB; get b, " << r.b
           << " MiB; get c, " << r.c << " MiB; free b; get d, " << 0.5 * double(r.d) << " MiB; get e, " << r.e
           << " bytes. How many bytes are reserved in the end?";
  const std::string id = "05.3";
  return {setting.str(),
          {{id, "hidden_T", "up to which T does a tensor (batch, T, channels) come from the small pool?",
            measured([=] {
              return longest_in_small_pool(s, [&](int64_t T) { return Shape{s.batch, T, c.channels}; });
            })},
           {id, "probabilities_T", "up to which T do a layer's attention probabilities (batch, heads, T, T)?",
            measured([=] {
              return longest_in_small_pool(s, [&](int64_t T) { return Shape{s.batch, c.heads, T, T}; });
            })},
           {id, "large_later", "how many segments of the large pool are asked for after the warm-up?",
            measured([=] { return double(asked_later(s, 0).large); })},
           {id, "small_later", "and how many of the small pool? (right within a tenth)",
            measured([=] { return double(asked_later(s, 0).small); }, 0.1)},
           {id, "third",
            "how many tokens must a third batch of warm-up have, so that none are asked for after it?",
            third_batch(s)},
           {"05.5", "reserved", requests.str(), measured([r] { return left_by(r).first; })},
           {"05.5", "allocated", "and how many are allocated, with what the blocks are rounded up?",
            measured([r] { return left_by(r).second; })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "05", gradus::predict::quiz); }
