// Checks whether a trace is valid by its format ("Trace Event Format", The Chromium Authors, 2016): written
// from that document, not from src/io/trace.cpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "src/core/json.h"

namespace gradus {

struct CheckedTrace {
  struct Slice {  // a complete event
    std::string name, category;
    int64_t begin, end;  // nanoseconds
    size_t depth;        // number of slices around it
    Json args;
  };
  using Track = std::pair<int64_t, int64_t>;   // process, thread
  std::map<Track, std::vector<Slice>> slices;  // by begin, outer slices first
  std::map<Track, std::string> threads;
  std::map<int64_t, std::string> processes;
  struct Arrow {
    Track from, to;
    int64_t begin, end;
  };
  std::vector<Arrow> arrows;
  int64_t counters = 0;
  std::vector<std::string> problems;  // at most 20

  explicit CheckedTrace(const std::string& text) {
    const Json file = Json::parse(text, nullptr, false);
    if (file.is_discarded() || !file.is_object() || !file.contains("traceEvents")) {
      problem("no JSON object with traceEvents");
      return;
    }
    for (const Json& e : file.at("traceEvents")) event(e);
    for (auto& [track, of] : slices) nest(track, of);
    for (const auto& [id, start] : started_) problem("arrow " + id + " has no end");
    for (const Arrow& a : arrows)
      if (!is_in_slice(a.from, a.begin) || !is_in_slice(a.to, a.end)) problem("an arrow that is in no slice");
  }
  const Slice* find(const std::string& name) const {
    for (const auto& [track, of] : slices)
      for (const Slice& s : of)
        if (s.name == name) return &s;
    return nullptr;
  }

 private:
  void problem(const std::string& what) {
    if (problems.size() < 20) problems.push_back(what);
  }
  static bool is_whole(const Json& e, const char* key) {
    return e.contains(key) && e.at(key).is_number_integer();
  }
  static bool is_time(const Json& e, const char* key) {
    return e.contains(key) && e.at(key).is_number() && std::isfinite(e.at(key).get<double>()) &&
           e.at(key).get<double>() >= 0;
  }
  static int64_t nanoseconds(const Json& microseconds) {
    return std::llround(microseconds.get<double>() * 1e3);
  }
  void event(const Json& e) {
    if (!e.is_object() || !e.contains("ph") || !e.at("ph").is_string()) return problem("an event without ph");
    const std::string phase = e.at("ph"), text = e.dump().substr(0, 160);
    if (!e.contains("name") || !e.at("name").is_string() || e.at("name").get<std::string>().empty())
      return problem("no name: " + text);
    if (!is_whole(e, "pid") || !is_whole(e, "tid")) return problem("no pid or tid: " + text);
    const Track track(e.at("pid"), e.at("tid"));
    if (phase == "M") return metadata(e, track, text);
    if (!is_time(e, "ts")) return problem("no ts: " + text);
    const int64_t at = nanoseconds(e.at("ts"));
    if (phase == "X") {
      if (!is_time(e, "dur")) return problem("no dur: " + text);
      slices[track].push_back({e.at("name"), e.value("cat", ""), at, at + nanoseconds(e.at("dur")), 0,
                               e.value("args", Json::object())});
    } else if (phase == "C") {
      const Json args = e.value("args", Json::object());
      if (args.empty() || !std::all_of(args.begin(), args.end(), [](const Json& v) { return v.is_number(); }))
        return problem("a counter without numbers: " + text);
      ++counters;
    } else if (phase == "s" || phase == "f") {
      arrow(e, track, at, phase == "s", text);
    } else {
      problem("an unknown phase: " + text);
    }
  }
  void metadata(const Json& e, const Track& track, const std::string& text) {
    const Json args = e.value("args", Json::object());
    if (!args.contains("name") || !args.at("name").is_string()) return problem("names nothing: " + text);
    if (e.at("name") == "process_name")
      processes[track.first] = args.at("name");
    else if (e.at("name") == "thread_name")
      threads[track] = args.at("name");
    else
      problem("unknown metadata: " + text);
  }
  // Both ends have the same id, category and name; the end binds to the slice around it.
  void arrow(const Json& e, const Track& track, int64_t at, bool starts, const std::string& text) {
    if (!e.contains("id") || !e.contains("cat")) return problem("an arrow without id or cat: " + text);
    const std::string id = e.at("id").dump() + e.at("cat").dump() + e.at("name").dump();
    if (starts) {
      if (!ids_.insert(id).second) problem("an id twice: " + text);
      started_[id] = {track, at};
      return;
    }
    const auto start = started_.find(id);
    if (start == started_.end()) return problem("an end without a start: " + text);
    if (e.value("bp", "") != "e") problem("an end that binds to the next slice: " + text);
    if (at < start->second.second) problem("an arrow backwards in time: " + text);
    arrows.push_back({start->second.first, track, start->second.second, at});
    started_.erase(start);
  }
  // Slices of a thread are nested or disjoint.
  void nest(const Track& track, std::vector<Slice>& of) {
    std::stable_sort(of.begin(), of.end(), [](const Slice& a, const Slice& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<const Slice*> open;
    for (Slice& s : of) {
      while (!open.empty() && open.back()->end <= s.begin &&
             !(open.back()->end == s.begin && s.end == s.begin && open.back()->begin == s.begin))
        open.pop_back();
      if (!open.empty() && s.end > open.back()->end)
        problem("'" + s.name + "' ends after '" + open.back()->name + "', in which it began, by " +
                std::to_string(s.end - open.back()->end) + " ns, on thread " + std::to_string(track.second));
      s.depth = open.size();
      open.push_back(&s);
    }
  }
  bool is_in_slice(const Track& track, int64_t at) const {
    const auto of = slices.find(track);
    return of != slices.end() && std::any_of(of->second.begin(), of->second.end(),
                                             [&](const Slice& s) { return s.begin <= at && at <= s.end; });
  }
  std::map<std::string, std::pair<Track, int64_t>> started_;
  std::set<std::string> ids_;
};

}  // namespace gradus
