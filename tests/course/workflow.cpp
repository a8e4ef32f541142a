// The workflow for GitHub Actions that runs the open exercises of a handed-out tree after each push.
#include <algorithm>

#include "tests/course/commands.h"
#include "tests/course/tree.h"

namespace gradus::course {

// In the teacher's file, ID stands for an exercise or a lesson, and the last paragraph is repeated for each;
// HASH stands for a hash of all other files of the tree.
static const std::string kTemplate = "tests/course/teacher/exercises.yml";

void add_workflow(const fs::path& tree, const Names& open) {
  const std::string form = read(kTemplate);
  if (form.empty()) refuse(kTemplate, " is missing; hand out from a clone of gradus");
  const size_t end = form.rfind("\n\n") + 1;
  const std::string step = form.substr(end);
  std::string text = form.substr(0, end);
  Lines ids;
  for (const Exercise& e : exercises())
    if (open.contains(e.id)) ids.push_back(e.id);
  for (size_t k = 0; k < ids.size(); ++k) {
    text += replaced(step, "ID", ids[k]);
    if (k + 1 == ids.size() || lesson_of(ids[k + 1]) != lesson_of(ids[k]))
      text += replaced(step, "ID", lesson_of(ids[k]));
  }
  // The workflow's last change must be the commit that was handed out, also after a correction of the other
  // files.
  const Ran hash =
      run(say("cd ", shell_word(tree.string()),
              " && find . -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum | cut -c1-16"));
  write(tree / ".github/workflows/exercises.yml", replaced(text, "HASH", trimmed(hash.output)));
}

}  // namespace gradus::course
