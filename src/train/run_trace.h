// --trace=FILE: what the contexts of a run did when, in one file for ui.perfetto.dev and chrome://tracing.
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
  ~RunTrace();  // after an error, too, there is a trace of what was done before it
  const std::string& path() const { return path_; }
  // All that it does from now on, until the run has so many events as viewers can show: 200,000.
  void add(Context& context, const std::string& name);
  void write();  // ends all recordings; says on std::cout where it is

 private:
  std::string path_;
  std::shared_ptr<int64_t> room_ = std::make_shared<int64_t>(200'000);
  std::vector<std::pair<std::string, std::unique_ptr<Profiler>>> contexts_;
};

}  // namespace gradus
