// Lesson 22, the scoreboard: every method of the course on one model, and the trainer that has them as flags.
//
//   make lesson-22                                             expected last line: PASS
//   make gradus && build/gradus train --data=FILE --save=run.safetensors
#include <iostream>

#include "lessons/22_scoreboard/best.h"
#include "lessons/22_scoreboard/commands.h"
#include "lessons/22_scoreboard/methods.h"
#include "lessons/22_scoreboard/published.h"
#include "src/parallel/comm/processes.h"
#include "src/train/lesson.h"

using namespace gradus;

static std::vector<Measured> run_methods(const char* heading, const std::vector<Method>& methods,
                                         Scoreboard& board, Report& report) {
  std::vector<Measured> measured;
  for (const Method& m : methods) measured.push_back(board.measure(m));
  std::cout << heading << "\n\n";
  print_methods(methods, measured);
  for (size_t i = 0; i < methods.size(); ++i)
    report.check_equal(methods[i].name + ": less memory", measured[i].memory < 1, methods[i].saves);
  return measured;
}

static int lesson_22(int argc, char** argv) {
  Lesson lesson(argc, argv, "22_scoreboard", "every method of the course, alone and combined, on one model",
                20);
  const std::string picture = lesson.plot("22_methods.svg");
  lesson.done({}, {picture});
  const LessonContext context(lesson);
  Report report = lesson.report();
  Scoreboard board("--batch=16 --context=64 --model=gpt-4x128x4 --text-bytes=100000", lesson.steps);
  std::vector<Method> methods = published_methods();
  std::vector<Measured> measured = run_methods("(a)", methods, board, report);
  const std::vector<Measured> more = run_methods("(b)", course_methods(), board, report);
  methods.insert(methods.end(), course_methods().begin(), course_methods().end());
  measured.insert(measured.end(), more.begin(), more.end());
  draw_methods(methods, measured, picture);
  published_table(report);
  budgets_table(Scoreboard("--model=gpt2 --vocab=0 --context=0 --batch=16", 1), machine_called("A100"),
                report);
  return lesson.finish(report);
}

int main(int argc, char** argv) {
  return run_lesson([&] {
    return run_process(argc, argv, [&] {
      const Command* command = command_in(argc, argv);
      return command ? run_command(*command, with_files(argc, argv)) : lesson_22(argc, argv);
    });
  });
}
