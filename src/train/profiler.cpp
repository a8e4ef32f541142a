#include "src/train/profiler.h"

#include <algorithm>
#include <string_view>

#include "src/io/trace.h"
#include "src/memory/device_timing.h"

namespace gradus {

Profiler::~Profiler() {
  if (records()) end();
}

void Profiler::begin() {
  check(!records(), "profiler: it records already");
  observe(context_);
  told_ = context_.ranges.tell([this](size_t depth, const char* name) { range(depth, name); });
}

void Profiler::end() {
  check(records(), "profiler: it does not record");
  context_.ranges.forget(*std::exchange(told_, std::nullopt));
  stop();
  for (const double now = seconds_now(context_.device); !open_.empty(); open_.pop_back())
    events_[size_t(open_.back())].end = now;
}

// A range that began before begin() is not known, nor its end.
void Profiler::range(size_t, const char* name) {
  const double now = seconds_now();
  if (!name) {
    if (open_.empty()) return;
    events_[size_t(open_.back())].end = now;
    open_.pop_back();
    return;
  }
  const int64_t parent = open_.empty() ? -1 : open_.back();
  const bool backward = (parent >= 0 && events_[size_t(parent)].track == ProfileTrack::Backward) ||
                        std::string_view(name) == "backward";
  open_.push_back(int64_t(events_.size()));
  events_.push_back(
      {interned(name), backward ? ProfileTrack::Backward : ProfileTrack::Program, parent, now, now, {}});
}

void Profiler::call(std::unique_ptr<KernelCall> call) {
  const double begin = seconds_now(context_.device);
  call->make(kernels());
  const double end = seconds_now(context_.device);
  events_.push_back({interned(call->entry), ProfileTrack::Kernels, open_.empty() ? -1 : open_.back(), begin,
                     end, call->cost});
  note_bytes(end);
}

void Profiler::note_bytes(double at) {
  const Usage& now = context_.device.meter().now();
  if (bytes_.empty() || !(bytes_.back().usage == now)) bytes_.push_back({at, now});
}

void write_trace(const std::string& path, const Profiler& profiler) {
  TraceFile file(path);
  file.name_process(0, "gradus");
  constexpr const char* kTracks[] = {"program", "backward", "kernels"};
  for (int t = 0; t < 3; ++t) file.name_track({0, t}, kTracks[t]);
  const double start = profiler.events().empty() ? 0 : profiler.events()[0].begin;
  for (const ProfileEvent& e : profiler.events()) {
    TraceFile::Values details;
    if (e.track == ProfileTrack::Kernels)
      details = {{"GFLOP", double(e.cost.flops) * 1e-9}, {"GB", double(e.cost.bytes) * 1e-9}};
    file.span({0, int64_t(e.track)}, *e.name, e.begin - start, e.end - start, details);
  }
  for (const Profiler::Bytes& b : profiler.bytes()) {
    TraceFile::Values values;
    for (int k = 0; k < kKinds; ++k)
      values.emplace_back(name_of(Kind(k)), double(b.usage.by_kind[size_t(k)]));
    file.counters(0, "memory", b.at - start, values);
  }
  file.commit();
}

static void add(std::map<std::string, ProfileRow>& rows, const std::string& name, const ProfileEvent& e) {
  ProfileRow& row = rows[name];
  row.name = name;
  ++row.calls;
  row.seconds += e.end - e.begin;
  row.cost.flops += e.cost.flops, row.cost.bytes += e.cost.bytes;
}

static std::vector<ProfileRow> sorted(const std::map<std::string, ProfileRow>& rows) {
  std::vector<ProfileRow> all;
  for (const auto& [name, row] : rows) all.push_back(row);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return all;
}

std::vector<ProfileRow> by_kernel(const Profiler& profiler) {
  std::map<std::string, ProfileRow> rows;
  for (const ProfileEvent& e : profiler.events())
    if (e.track == ProfileTrack::Kernels) add(rows, *e.name, e);
  return sorted(rows);
}

std::vector<ProfileRow> by_op(const Profiler& profiler) {
  std::map<std::string, ProfileRow> rows;
  for (const ProfileEvent& e : profiler.events())
    if (e.track == ProfileTrack::Kernels)
      add(rows, e.parent < 0 ? "outside of all" : *profiler.events()[size_t(e.parent)].name, e);
  return sorted(rows);
}

}  // namespace gradus
