#include "tests/course/trees.h"

#include <algorithm>

namespace gradus::course {

static Names files_of(const fs::path& folder) {
  Names names;
  for (auto at = fs::recursive_directory_iterator(folder); at != fs::recursive_directory_iterator(); ++at) {
    const fs::path name = at->path().lexically_relative(folder);
    if (name == ".git" || name == "build")
      at.disable_recursion_pending();
    else if (at->is_regular_file())
      names.insert(name.string());
  }
  return names;
}

void TrialTree::be_like(const fs::path& from) const {
  const auto all = fs::copy_options::recursive | fs::copy_options::copy_symlinks;
  if (!fs::exists(folder_)) {
    fs::create_directories(folder_ / "build");
    // cp -a keeps the times of the files, which make compares.
    run(say("cp -a build/obj build/flags build/one ", folder_ / "build"));
  }
  const Names wanted = files_of(from);
  for (const std::string& name : files_of(folder_))
    if (!wanted.contains(name)) fs::remove(folder_ / name);
  for (const std::string& name : wanted) {
    const bool is_new = !fs::exists(folder_ / name);
    if (!is_new && read(from / name) == read(folder_ / name)) continue;
    fs::create_directories((folder_ / name).parent_path());
    fs::copy(from / name, folder_ / name, all | fs::copy_options::overwrite_existing);
    // A new or restored file keeps its time, because its object file may exist.
    if (is_new) fs::last_write_time(folder_ / name, fs::last_write_time(from / name));
  }
}

Ran TrialTree::make(const std::string& goals) const {
  return run(say("unset MAKEFLAGS MAKELEVEL MFLAGS; cd ", folder_, " && make ", goals));
}

Ran TrialTree::tests_of(const std::string& id) const {
  return run(say("cd ", folder_, " && build/tests/", lesson_of(id),
                 " --gtest_filter=", shell_word(filter_of(course::tests_of(id)))));
}

std::string lines_with(const std::string& log, const Lines& parts, size_t most) {
  std::string found;
  size_t count = 0;
  for (const std::string& line : lines_of(log))
    if (std::any_of(parts.begin(), parts.end(), [&](const std::string& p) { return has(line, p); }) &&
        count++ < most)
      found += line.substr(0, 200) + "\n";
  return found;
}

}  // namespace gradus::course
