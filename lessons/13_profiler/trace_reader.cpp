#include "lessons/13_profiler/trace_reader.h"

#include <nlohmann/json.hpp>

#include "src/core/input_file.h"
#include "src/core/json.h"

namespace gradus {

static std::vector<TracedSpan> read_spans(const std::string& path) {
  std::vector<TracedSpan> spans;
  try {
    const Json file = Json::parse(read_text_file(path));
    for (const Json& e : file.at("traceEvents")) {
      if (e.at("ph") != "X" || e.at("pid") != 0) continue;
      const double begin = e.at("ts").get<double>() * 1e-6;
      const Json& details = e.at("args");
      const auto track = ProfileTrack(e.at("tid").get<int>());
      const std::string name = e.at("name"), in = details.value("in", "");
      const std::string range = in + (in.empty() ? "" : "/") + name;
      spans.push_back({name, e.at("cat"), track == ProfileTrack::Kernels ? in : range, track, begin,
                       begin + e.at("dur").get<double>() * 1e-6, details.value("bytes", int64_t(0))});
    }
  } catch (const Json::exception& e) {
    fail(path, ": this is not a trace of the profiler: ", e.what());
  }
  return spans;
}

std::vector<TracedStep> read_steps(const std::string& path) {
  const std::vector<TracedSpan> spans = read_spans(path);
  std::vector<TracedStep> steps;
  for (const TracedSpan& step : spans) {
    if (step.track != ProfileTrack::Program || !step.name.starts_with("step ")) continue;
    TracedStep s{step.seconds(), {}, {}};
    for (const TracedSpan& e : spans) {
      if (&e == &step || e.begin < step.begin || e.begin >= step.end) continue;
      (e.track == ProfileTrack::Kernels ? s.kernels : s.ranges).push_back(e);
    }
    steps.push_back(std::move(s));
  }
  check(!steps.empty(), path, ": this trace has no steps; profile a loop that calls next_step()");
  return steps;
}

}  // namespace gradus
