#include "lessons/05_allocator/faults.h"

#include <iostream>

#include "lessons/05_allocator/checks.h"
#include "src/core/table.h"
#include "src/io/memory_files.h"
#include "src/tensor/profile_range.h"

namespace gradus {
namespace {

constexpr int64_t kSteps = 8, kPatience = 2, kSpikeStep = 5;
constexpr size_t kShortLife = 10;  // events; a step of the small model has about 170

Found findings_in(const Allocator& allocator) {
  const std::vector<size_t> begins = step_begins(allocator.history(), "data");
  return {find_leaks(allocator.history(), begins, kPatience),
          find_spike(allocator.history(), begins, kShortLife)};
}

void print(const char* which, const Found& found) {
  const std::string run = std::string("  ") + which + ": ";
  if (found.leaks.empty()) std::cout << run << "no leak\n";
  for (const Leak& leak : found.leaks)
    std::cout << run << "leak: " << leak.name << " (" << leak.op << "), " << bytes_text(leak.bytes)
              << " in all, allocated in steps " << leak.steps.front() << " to " << leak.steps.back() << "\n";
  if (!found.spike) return;
  const Spike& s = *found.spike;
  std::cout << run << (found.has_large_spike() ? "spike: " : "no spike; largest short-lived block: ")
            << s.name << " (" << s.op << "), " << bytes_text(s.bytes) << ", " << percent_text(s.share())
            << " of the peak, in step " << s.step << ", alive for " << s.events
            << (s.events == 1 ? " event" : " events") << "\n";
}

}  // namespace

void find_faults(Report& report, const Workload& workload, const Lesson& lesson, const std::string& folder) {
  const Cure padded{.name = "padded", .padded = true};  // so that all steps are the same
  std::cout << "\nFindings in the memory history of the small model, padded, " << kSteps << " steps:\n";
  {
    LessonContext context(lesson);
    context.device.allocator().keep_history();
    run_workload(workload, padded, kSteps, lesson.seed, [&](int64_t step, Transformer&, Tape& tape) {
      if (step == 0 && lesson.print == "tape") tape.print(std::cout);
    });
    const Found found = findings_in(context.device.allocator());
    print("without faults", found);
    check_clean(found, report);
  }
  LessonContext context(lesson);
  Allocator& allocator = context.device.allocator();
  allocator.keep_history();
  std::vector<Tensor> kept;
  run_workload(workload, padded, kSteps, lesson.seed, [&](int64_t step, Transformer& model, Tape&) {
    // The leak: the program keeps the gradient of the last step "for a plot"; the backward pass allocates a
    // new one.
    kept.push_back(std::exchange(model.parameters.find("wte.weight").leaf.grad, Tensor()));
    if (step != kSpikeStep) return;
    // The spike: the differences of all pairs of tokens; a matrix product would need no such tensor.
    const ProfileRange range("debug");
    const int64_t T = workload.longest;
    Tensor(context.device, {T, T, model.config.channels}, DType::F32, Kind::Temporary, "differences");
  });
  const Found found = findings_in(allocator);
  print("with two faults", found);
  check_faults(found, kSpikeStep, report);
  const std::string page = folder + "/05_memory.html", snapshot = folder + "/05_snapshot.pickle",
                    picture = lesson.plot("05_faults.svg");
  write_memory_page(page, allocator, "Lesson 05: two planted faults, a leak and a spike");
  write_memory_snapshot(snapshot, allocator);
  write_memory_plot(picture, allocator, "Two planted faults: a leak, and a spike in step 5");
  std::cout << "  picture of the history: " << picture << "\n  page for a browser: " << page
            << "\n  snapshot for https://pytorch.org/memory_viz: " << snapshot << "\n";
}

}  // namespace gradus
