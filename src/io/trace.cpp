#include "src/io/trace.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "src/core/json.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/io/svg.h"

namespace gradus {

constexpr size_t kBuffer = size_t(1) << 20;

// Whole nanoseconds, so that a span within another is still within it after rounding.
static int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
// As microseconds, the format's unit.
static std::string microseconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", double(ns) * 1e-3);
  return text;
}

// The arguments, without the closing brace.
static std::string arguments(const TraceFile::Values& values) {
  std::string text = ",\"args\":{";
  for (const auto& [name, value] : values) {
    if (text.back() != '{') text += ',';
    text.append("\"").append(name).append("\":").append(std::to_string(value));
  }
  return text;
}

void TraceFile::event(std::string_view name, const char* phase, Track track, double at,
                      const std::string& rest) {
  buffer_ += std::exchange(any_, true) ? ",\n" : "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  buffer_.append("{\"name\":").append(json_text(Json(std::string(name)))).append(",\"ph\":\"").append(phase);
  buffer_.append("\",\"pid\":").append(std::to_string(track.process));
  buffer_.append(",\"tid\":").append(std::to_string(track.number));
  buffer_.append(",\"ts\":").append(microseconds(nanoseconds(at))).append(rest).append("}");
  if (buffer_.size() < kBuffer) return;
  file_.write(buffer_.data(), int64_t(buffer_.size()));
  buffer_.clear();
}

void TraceFile::name_of(const char* what, Track track, const std::string& name) {
  event(what, "M", track, 0, ",\"args\":{\"name\":" + json_text(Json(name)) + "}");
}

void TraceFile::span(Track track, std::string_view name, double begin, double end, const char* category,
                     const Values& details, const std::string& in) {
  std::string args = arguments(details);
  if (!in.empty()) args.append(details.empty() ? "" : ",").append("\"in\":").append(json_text(Json(in)));
  const std::string dur = microseconds(nanoseconds(end) - nanoseconds(begin));
  event(name, "X", track, begin, ",\"dur\":" + dur + ",\"cat\":\"" + category + "\"" + args + "}");
}

void TraceFile::counters(int64_t process, std::string_view name, double at, const Values& values) {
  event(name, "C", {process, 0}, at, arguments(values) + "}");
}

void TraceFile::arrow(std::string_view name, Track from, double begin, Track to, double end) {
  const std::string id = ",\"cat\":\"arrow\",\"id\":" + std::to_string(++arrows_);
  event(name, "s", from, begin, id);
  event(name, "f", to, end, id + ",\"bp\":\"e\"");  // of the span around it
}

void TraceFile::commit() {
  buffer_ += any_ ? "\n]}\n" : "{\"traceEvents\":[]}\n";
  file_.write(buffer_.data(), int64_t(buffer_.size()));
  file_.commit();
}

void write_trace(const std::string& path, const std::vector<Span>& spans) {
  TraceFile file(path);
  int64_t ranks = 0;
  for (const Span& s : spans) {
    file.span({s.rank, s.communicates}, s.name, s.begin, s.end, s.communicates ? "network" : "compute");
    ranks = std::max(ranks, s.rank + 1);
  }
  for (int64_t r = 0; r < ranks; ++r) {
    file.name_process(r, "rank " + std::to_string(r));
    file.name_track({r, 0}, "compute");
    file.name_track({r, 1}, "network");
  }
  file.commit();
}

std::string draw_timeline(const std::string& title, const std::vector<Span>& spans,
                          const std::vector<std::string>& rows) {
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
    const std::string row = rows.empty() ? "rank " + std::to_string(r) : rows[size_t(r)];
    svg.text(kLeft - 10, y + 12, row + ", compute", "end", " font-size='11'");
    svg.text(kLeft - 10, y + kLane + 12, "network", "end", " font-size='11'");
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
