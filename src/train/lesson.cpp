#include "src/train/lesson.h"

#include <algorithm>
#include <iostream>

#include "src/io/atomic_file.h"

namespace gradus {

Lesson::Lesson(int argc, char** argv, const std::string& lesson_name, const std::string& about,
               int64_t default_steps)
    : args(argc, argv, lesson_name, about), name(lesson_name) {
  device = args.choice("device", "auto", "where tensors live and kernels run", device_names());
  steps = args.integer("steps", default_steps, "training steps", 1, 100'000'000);
  seed = uint64_t(
      args.integer("seed", 1, "seed of weights, data order and everything else random", 0, INT64_MAX));
  memory = args.bytes("memory", 0, "budget of device memory, for example 64MiB (0: none)");
  json = args.text("json", "", "also write the report to this file");
  print = args.choice("print", "none",
                      "tape: the tape of the first step; example: only the example by hand of the page",
                      {"none", "tape", "example"});
  if (const std::string file =
          args.text("trace", "", "also write a trace of all operations, for ui.perfetto.dev (slower)");
      !file.empty())
    trace = std::make_unique<RunTrace>(file);
  check = args.choice("check", "none", "nan: stop at the first op whose output is not finite (slow)",
                      {"none", "nan"});
}

void Lesson::done(const std::vector<std::string>& files, const std::vector<std::string>& made) {
  args.done();
  const auto try_file = [](const std::string& path) {
    if (!path.empty()) AtomicFile{path};
  };
  try_file(json);
  if (trace) try_file(trace->path());
  for (const std::string& path : files) try_file(path);
  for (const std::string& path : made) {
    make_folder_of(path);
    try_file(path);
  }
}

int Lesson::finish(Report& report) const {
  int failed = 0;
  try {
    if (trace) trace->write();
  } catch (const Error& e) {  // the report must not be lost with it
    std::cerr << e.what() << std::endl;
    failed = 1;
  }
  return std::max(failed, report.finish(json));
}

std::function<void(int64_t, Context&)> Lesson::traced_ranks() const {
  return [this](int64_t rank, Context& context) {
    if (trace) trace->add(context, "rank " + std::to_string(rank));
  };
}

LessonContext::LessonContext(const Lesson& lesson, const std::string& device_name, int64_t memory_budget)
    : Context(device_name, lesson.seed, memory_budget) {
  check_finite = lesson.check == "nan" && device.has_data();
  if (lesson.trace) lesson.trace->add(*this, device.name());
}

int run_lesson(const std::function<int()>& body) {
  try {
    return body();
  } catch (const BadArguments& e) {
    std::cerr << e.what() << std::endl;
    return 2;
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 1;
  }
}

}  // namespace gradus
