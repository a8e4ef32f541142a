#include "src/io/trace.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/core/json.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/io/svg.h"

namespace gradus {

static const char* lane(const Span& s) { return s.communicates ? "network" : "compute"; }

void write_trace(const std::string& path, const std::vector<Span>& spans) {
  constexpr double kMicro = 1e6;
  Json events = Json::array();
  for (const Span& s : spans) {
    events.push_back({{"name", s.name},
                      {"cat", lane(s)},
                      {"ph", "X"},
                      {"ts", s.begin * kMicro},
                      {"dur", (s.end - s.begin) * kMicro},
                      {"pid", s.rank},
                      {"tid", int(s.communicates)}});
  }
  const auto name = [&](const char* what, int64_t rank, int tid, const std::string& text) {
    Json e{{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", tid}};
    e["args"]["name"] = text;
    events.push_back(std::move(e));
  };
  int64_t ranks = 0;
  for (const Span& s : spans) ranks = std::max(ranks, s.rank + 1);
  for (int64_t r = 0; r < ranks; ++r) {
    name("process_name", r, 0, "rank " + std::to_string(r));
    name("thread_name", r, 0, "compute");
    name("thread_name", r, 1, "network");
  }
  write_file(path, json_text({{"traceEvents", events}, {"displayTimeUnit", "ms"}}));
}

std::string draw_timeline(const std::string& title, const std::vector<Span>& spans) {
  constexpr double kLeft = 130, kWidth = 640, kTop = 64, kLane = 16, kRank = 2 * kLane + 10;
  std::vector<std::string> names;  // of phases; communication has the color after them
  int64_t ranks = 0;
  double begin = INFINITY, end = -INFINITY;
  for (const Span& s : spans) {
    if (!s.communicates && std::find(names.begin(), names.end(), s.name) == names.end())
      names.push_back(s.name);
    ranks = std::max(ranks, s.rank + 1);
    begin = std::min(begin, s.begin), end = std::max(end, s.end);
  }
  names.push_back("communication");
  const auto color = [&](const std::string& name) {
    const size_t i = size_t(std::find(names.begin(), names.end(), name) - names.begin());
    return "hsl(" + std::string(kHues[i % kHues.size()]) + ",55%)";
  };
  Svg svg;
  svg.text(kLeft, 24, title, "start", " font-weight='600'");
  double x = kLeft;
  for (const std::string& name : names) {
    svg.rect(x, 38, 12, 12, color(name));
    svg.text(x + 17, 48, name, "start");
    x += 35 + Svg::width_of(name);
  }
  const auto at = [&](double t) { return kLeft + (t - begin) / (end - begin) * kWidth; };
  for (int64_t r = 0; r < ranks; ++r) {
    const double y = kTop + double(r) * kRank;
    svg.text(kLeft - 10, y + 12, "rank " + std::to_string(r) + " computes", "end", " font-size='11'");
    svg.text(kLeft - 10, y + kLane + 12, "sends", "end", " font-size='11'");
    svg.rect(kLeft, y + 2 * kLane - 1, kWidth, 0.6, "#ddd");
  }
  for (const Span& s : spans) {
    const double y = kTop + double(s.rank) * kRank + (s.communicates ? kLane : 0);
    // A line of the ground between neighbours, unless they are thin.
    const double width = at(s.end) - at(s.begin), seen = width > 3 ? width - 0.8 : width;
    svg.rect(at(s.begin), y, seen, kLane - 2, color(s.communicates ? names.back() : s.name));
  }
  const double bottom = kTop + double(ranks) * kRank;
  svg.text(kLeft, bottom + 14, "0", "middle");
  svg.text(kLeft + kWidth, bottom + 14, seconds_text(end - begin), "middle");
  return svg.file(kLeft + kWidth + 50, bottom + 30);
}

}  // namespace gradus
