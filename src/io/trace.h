// What ran when, as a file for trace viewers (chrome://tracing, ui.perfetto.dev) and as a picture.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/io/atomic_file.h"

namespace gradus {

// An interval of time on a rank: a phase of computation, or communication, which may overlap with it.
struct Span {
  std::string name;
  int64_t rank;
  bool communicates;
  double begin, end;  // seconds
};

// In the trace event format ("Trace Event Format", The Chromium Authors, 2016: complete events): a process
// for each rank, with a thread that computes and one that communicates; times in microseconds.
void write_trace(const std::string& path, const std::vector<Span>& spans);

// Writes the same format event by event, with only some events in memory. Times in seconds.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : file_(path) {}
  struct Track {
    int64_t process, number;
  };
  void name_process(int64_t process, const std::string& name) { name_of("process_name", {process, 0}, name); }
  void name_track(Track track, const std::string& name) { name_of("thread_name", track, name); }
  using Values = std::vector<std::pair<const char*, int64_t>>;
  // On a track, spans do not overlap unless one is within the other.
  // `in`: the span on another track to which this one belongs.
  void span(Track track, std::string_view name, double begin, double end, const char* category,
            const Values& details = {}, const std::string& in = "");
  // Continues a curve for each value, which holds from `at` on.
  void counters(int64_t process, std::string_view name, double at, const Values& values);
  // From the span that is open at `begin` on track `from` to the one that is open at `end` on track `to`.
  void arrow(std::string_view name, Track from, double begin, Track to, double end);
  void commit();  // writes the file as a whole, or not at all

 private:
  void name_of(const char* what, Track track, const std::string& name);
  void event(std::string_view name, const char* phase, Track track, double at, const std::string& rest);
  AtomicFile file_;
  std::string buffer_;
  bool any_ = false;
  int64_t arrows_ = 0;
};

// An SVG: two lanes for each rank, a color for each name of a phase and one for communication. `rows` names
// the ranks; by default rank 0, rank 1, ...
std::string draw_timeline(const std::string& title, const std::vector<Span>& spans,
                          const std::vector<std::string>& rows = {});

}  // namespace gradus
