#include "src/train/profiler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "src/io/trace.h"

namespace gradus {

Profiler::Profiler(Context& context, const ProfileSchedule& schedule, std::shared_ptr<int64_t> room)
    : of_(context), schedule_(schedule), room_(std::move(room)) {
  check(schedule.wait >= 0 && schedule.warm_up >= 0 && schedule.record >= 1, "profiler: ", schedule.wait,
        " steps to wait, ", schedule.warm_up, " to warm up and ", schedule.record,
        " to record; the first two are 0 or more, the last 1 or more");
}

Profiler::~Profiler() { context_ends(); }

void Profiler::context_ends() noexcept {
  try {
    if (records()) end();
  } catch (...) {  // the device has failed; the next wait for a result reports it
  }
  context_ended_ = true;
}

void Profiler::begin() {
  check(!records(), "profiler: it records already");
  check(!context_ended_, "profiler: its context has ended");
  observe(of_);
  context_ = &of_;
  context_->ranges.add(*this);
  clock_ = of_.device.allocator().source().clock();
  note_bytes(seconds_now());
}

void Profiler::end() {
  check(records() || step_ > 0, "profiler: it does not record; call begin(), or next_step() for each step");
  if (!records()) return;  // the schedule has ended it, or has not begun it yet
  Context& context = *std::exchange(context_, nullptr);
  context.ranges.remove(*this);
  stop();
  end_step();
  if (step_ > 0 && step_ <= schedule_.wait + schedule_.warm_up)
    forget();  // the loop ended before it warmed up
}

// Ends the step, its open ranges and its kernels.
void Profiler::end_step() {
  read_kernel_times();
  ended(0);
  if (step_event_ >= 0) events_[size_t(std::exchange(step_event_, -1))].end = seconds_now();
}

void Profiler::forget() { events_.clear(), bytes_.clear(), open_.clear(), forwards_.clear(); }

void Profiler::next_step() {
  const int64_t first = schedule_.wait + schedule_.warm_up, step = step_++;
  if (step == schedule_.wait) begin();
  if (!records()) return;
  end_step();
  if (step == first) {
    forget();
    note_bytes(seconds_now());
  }
  if (step == first + schedule_.record) return end();
  if (full()) return;
  step_event_ = add(("step " + std::to_string(step)).c_str(), ProfileTrack::Program, -1);
}

int64_t Profiler::add(const char* name, ProfileTrack track, int64_t parent) {
  const double now = seconds_now();
  events_.push_back({&*names_.insert(name).first, track, parent, now, now, {}, -1});
  --*room_;
  return int64_t(events_.size()) - 1;
}

void Profiler::began(size_t depth, const char* name) {
  check(std::this_thread::get_id() == thread_, "profiler: the range '", name,
        "' begins on a thread that is not its context's; only that thread may use the context");
  ended(depth);  // if others were left open
  if (full()) return;
  const int64_t in = parent();
  const bool backward = in >= 0 && (events_[size_t(in)].track == ProfileTrack::Backward ||
                                    *events_[size_t(in)].name == "backward");
  open_.push_back({depth, add(name, backward ? ProfileTrack::Backward : ProfileTrack::Program, in)});
}

void Profiler::ended(size_t depth) {
  const double now = open_.empty() ? 0 : seconds_now();
  for (; !open_.empty() && open_.back().depth >= depth; open_.pop_back())
    events_[size_t(open_.back().event)].end = now;
}

void Profiler::noted(RangeNote what, int64_t value) {
  if (open_.empty() || full()) return;
  ProfileEvent& event = events_[size_t(open_.back().event)];
  if (what == RangeNote::Bytes) {
    event.cost.bytes += value;
  } else if (const auto forward = forwards_.find(value); forward != forwards_.end()) {
    event.forward = forward->second;
    forwards_.erase(forward);
  } else {
    forwards_[value] = open_.back().event;
  }
}

void Profiler::call(std::unique_ptr<KernelCall> call) {
  if (full()) return make(*call);
  clock_->note();
  kernels_.push_back(add(call->entry, ProfileTrack::Kernels, parent()));
  events_.back().cost = call->cost;
  struct End {  // also of a kernel that fails; then the clock may fail, too
    DeviceClock& clock;
    ~End() {
      try {
        clock.note();
      } catch (const Error&) {
      }
    }
  };
  {
    const End end{*clock_};
    make(*call);
  }
  note_bytes(seconds_now());
}

void Profiler::read_kernel_times() {
  const std::vector<int64_t> kernels = std::exchange(kernels_, {});
  const std::vector<double> times = clock_->read();
  for (size_t i = 0; i < kernels.size() && 2 * i + 1 < times.size(); ++i)
    events_[size_t(kernels[i])].begin = times[2 * i], events_[size_t(kernels[i])].end = times[2 * i + 1];
}

void Profiler::note_bytes(double at) {
  const Usage& now = of_.device.meter().now();
  if (bytes_.empty() || !(bytes_.back().usage == now)) bytes_.push_back({at, now});
}

// ---- the file ------------------------------------------------------------------------------------------

static const char* category(const ProfileEvent& e) {
  constexpr std::array<const char*, kOpClasses> kClasses = {"contraction", "normalization", "element-wise",
                                                            "other"};
  if (e.track == ProfileTrack::Kernels) return kClasses[size_t(e.cost.op_class)];
  if (e.name->starts_with("copy ")) return "copy";
  return e.cost.bytes > 0 ? "network" : "range";
}

static TraceFile::Values details(const ProfileEvent& e) {
  if (e.track == ProfileTrack::Kernels) return {{"flops", e.cost.flops}, {"bytes", e.cost.bytes}};
  if (e.cost.bytes > 0) return {{"bytes", e.cost.bytes}};
  return {};
}

// The ranges around an event, except the step: "backward/linear".
static std::string path_of(const Profiler& profiler, const ProfileEvent& e) {
  if (e.parent < 0) return "";
  const ProfileEvent& range = profiler.events()[size_t(e.parent)];
  if (range.is_step()) return "";
  const std::string before = path_of(profiler, range);
  return before + (before.empty() ? "" : "/") + *range.name;
}

static void write(TraceFile& file, int64_t process, const Profiler& profiler, double start) {
  const auto track = [&](const ProfileEvent& e) { return TraceFile::Track{process, int64_t(e.track)}; };
  for (const ProfileEvent& e : profiler.events()) {
    file.span(track(e), *e.name, e.begin - start, e.end - start, category(e), details(e),
              path_of(profiler, e));
    if (e.forward < 0) continue;
    const ProfileEvent& from = profiler.events()[size_t(e.forward)];
    file.arrow("backward", track(from), from.begin - start, track(e), e.begin - start);
  }
  std::array<bool, kKinds> used{};
  for (const Profiler::Bytes& b : profiler.bytes())
    for (int k = 0; k < kKinds; ++k) used[size_t(k)] |= b.usage[Kind(k)] > 0;
  for (const Profiler::Bytes& b : profiler.bytes()) {
    TraceFile::Values values;
    for (int k = 0; k < kKinds; ++k)
      if (used[size_t(k)]) values.emplace_back(name_of(Kind(k)), b.usage[Kind(k)]);
    file.counters(process, "memory", b.at - start, values);
  }
}

void write_trace(const std::string& path, const std::vector<ProfiledContext>& contexts) {
  TraceFile file(path);
  double start = INFINITY;
  for (const auto& [name, profiler] : contexts)
    for (const Profiler::Bytes& b : profiler->bytes()) start = std::min(start, b.at);
  int64_t process = 0;
  for (const auto& [name, profiler] : contexts) {
    file.name_process(process, name);
    constexpr std::array<const char*, 3> kTracks = {"program", "backward", "kernels"};
    for (int64_t t = 0; t < 3; ++t) file.name_track({process, t}, kTracks[size_t(t)]);
    write(file, process++, *profiler, start);
  }
  file.commit();
}

}  // namespace gradus
