// Lesson 22, the scoreboard: every method of the course on one model, and the trainer that has them as flags.
//
//   make lesson-22                                             expected last line: PASS
//   make gradus && build/gradus train --data=FILE --save=run.safetensors
#include <iostream>

#include "lessons/22_scoreboard/commands.h"
#include "src/parallel/comm/processes.h"
#include "src/train/lesson.h"

using namespace gradus;

static int lesson_22(int argc, char** argv) {
  Lesson lesson(argc, argv, "22_scoreboard", "every method of the course, alone and combined, on one model",
                20);
  lesson.done();
  const LessonContext context(lesson);
  Report report = lesson.report();
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
