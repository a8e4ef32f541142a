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
  // All that it does from now on, until it has kMostEvents together with those before it: viewers show no
  // more.
  void add(Context& context, const std::string& name);
  void write();  // ends all recordings; says on std::cout where it is

 private:
  static constexpr int64_t kMostEvents = 200'000;
  std::string path_;
  std::vector<std::pair<std::string, std::unique_ptr<Profiler>>> contexts_;
};

}  // namespace gradus
