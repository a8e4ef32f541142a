#include "src/train/run_trace.h"

#include <iostream>

#include "src/core/table.h"

namespace gradus {

void RunTrace::add(Context& context, const std::string& name) {
  auto profiler = std::make_unique<Profiler>(context, ProfileSchedule{}, room_);
  profiler->begin();
  contexts_.emplace_back(std::to_string(contexts_.size() + 1) + ": " + name, std::move(profiler));
}

void RunTrace::write() {
  const auto contexts = std::exchange(contexts_, {});
  std::vector<ProfiledContext> all;
  int64_t events = 0;
  for (const auto& [name, profiler] : contexts) {
    if (profiler->records()) profiler->end();
    all.push_back({name, profiler.get()});
    events += int64_t(profiler->events().size());
  }
  write_trace(path_, all);
  std::cout << "\ntrace: " << path_ << " (" << count_text(events) << " events"
            << (*room_ > 0 ? ")" : "; later events are not in it)") << "\n";
}

RunTrace::~RunTrace() {
  try {
    if (!contexts_.empty()) write();
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
  }
}

}  // namespace gradus
