// Who did what when: as a file for trace viewers (chrome://tracing, ui.perfetto.dev), and as a picture.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace gradus {

// Something that took time on a rank: a phase of computing, or communication, which goes on beside it.
struct Span {
  std::string name;
  int64_t rank;
  bool communicates;
  double begin, end;  // seconds
};

// In the trace event format ("Trace Event Format", The Chromium Authors, 2016: complete events): a process
// for each rank, with a thread that computes and one that communicates; times in microseconds.
void write_trace(const std::string& path, const std::vector<Span>& spans);

// An SVG: two lanes for each rank, a color for each name of a phase and one for communication.
std::string draw_timeline(const std::string& title, const std::vector<Span>& spans);

}  // namespace gradus
