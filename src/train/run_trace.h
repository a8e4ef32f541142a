// --trace=FILE: a trace of all contexts of a run, in one file for ui.perfetto.dev and chrome://tracing.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/train/profiler.h"

namespace gradus {

class RunTrace {
 public:
  explicit RunTrace(std::string path) : path_(std::move(path)) {}
  ~RunTrace();  // writes the trace, also after an error
  const std::string& path() const { return path_; }
  // Records all that it does from now on, until the run has 200,000 events, as many as viewers can show.
  void add(Context& context, const std::string& name);
  void write();  // ends all recordings; prints the file's name

 private:
  std::string path_;
  std::shared_ptr<int64_t> room_ = std::make_shared<int64_t>(200'000);
  std::vector<std::pair<std::string, std::unique_ptr<Profiler>>> contexts_;
};

}  // namespace gradus
