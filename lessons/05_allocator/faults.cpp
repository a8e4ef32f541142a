#include "lessons/05_allocator/faults.h"

#include <iostream>

#include "lessons/05_allocator/checks.h"
#include "src/core/table.h"
#include "src/io/memory_files.h"
#include "src/tensor/profile_range.h"

namespace gradus {
namespace {

constexpr int64_t kSteps = 8, kPatience = 2, kSpikeStep = 5;
constexpr size_t kShortLife = 10;  // events; a step of the small model has some 170

Found look_into(const Allocator& allocator) {
  const std::vector<size_t> begins = step_begins(allocator.history(), "data");
  return {find_leaks(allocator.history(), begins, kPatience),
          find_spike(allocator.history(), begins, kShortLife)};
}

void print(const char* which, const Found& found) {
  const std::string run = std::string("  ") + which + ": ";
  if (found.leaks.empty()) std::cout << run << "nothing leaks\n";
  for (const Leak& leak : found.leaks)
    std::cout << run << leak.name << " leaks (" << leak.op << "): " << bytes_text(leak.bytes)
              << " from steps " << leak.steps.front() << " to " << leak.steps.back() << "\n";
  if (!found.spike) return;
  const Spike& s = *found.spike;
  std::cout << run << "at the peak " << percent_text(s.share()) << " are " << s.name << " (" << s.op << "), "
            << bytes_text(s.bytes) << " in step " << s.step << ", alive for " << s.events
            << (s.events == 1 ? " event" : " events") << "\n";
}

}  // namespace

void find_faults(Report& report, const Stream& stream, const Lesson& lesson, const std::string& folder) {
  const Cure padded{.name = "padded", .padded = true};  // so that all steps are alike
  std::cout << "\nWhat the memory history tells:\n";
  {
    LessonContext context(lesson);
    context.device.allocator().keep_history();
    run_stream(stream, padded, kSteps, lesson.seed, [&](int64_t step, Transformer&, Tape& tape) {
      if (step == 0 && lesson.print == "tape") tape.print(std::cout);
    });
    const Found found = look_into(context.device.allocator());
    print("clean", found);
    check_clean(found, report);
  }
  LessonContext context(lesson);
  Allocator& allocator = context.device.allocator();
  allocator.keep_history();
  std::vector<Tensor> kept;
  run_stream(stream, padded, kSteps, lesson.seed, [&](int64_t step, Transformer& model, Tape&) {
    // The leak: the gradient of the step before is kept "to be plotted"; backward makes a new one.
    kept.push_back(std::exchange(model.parameters.find("wte.weight").leaf.grad, Tensor()));
    if (step != kSpikeStep) return;
    // The spike: every token's channels minus every other's, where a product would have done.
    const ProfileRange range("debug");
    const int64_t T = stream.longest;
    Tensor(context.device, {T, T, model.config.channels}, DType::F32, Kind::Temporary, "differences");
  });
  const Found found = look_into(allocator);
  print("with two faults", found);
  check_faults(found, kSpikeStep, report);
  const std::string page = folder + "/05_memory.html", snapshot = folder + "/05_snapshot.pickle",
                    picture = lesson.plot("05_faults.svg");
  write_memory_page(page, allocator, "Lesson 05: a leak and a spike");
  write_memory_snapshot(snapshot, allocator);
  write_memory_plot(picture, allocator, "A leak, and a spike in step 5");
  std::cout << "  to look at: " << page << " in a browser, " << picture << "\n  and " << snapshot
            << " at https://pytorch.org/memory_viz\n";
}

}  // namespace gradus
