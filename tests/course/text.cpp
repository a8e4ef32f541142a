#include "tests/course/text.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace gradus::course {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
  return first == text.npos ? "" : text.substr(first, last - first + 1);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string after(const std::string& text, const std::string& before, const std::string& end) {
  const size_t at = text.find(before);
  if (at == text.npos) return "";
  const size_t begin = at + before.size();
  return text.substr(begin, text.find_first_of(end, begin) - begin);
}

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}
std::string text_of(const Lines& lines) { return lines.empty() ? "" : joined(lines, "\n") + "\n"; }

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const fs::path& file, const std::string& text) {
  if (file.has_parent_path()) fs::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) refuse(file.string(), " cannot be written");
}

Lines files(const Lines& folders, const Lines& endings) {
  Lines found;
  for (const std::string& folder : folders) {
    if (!fs::is_directory(folder)) continue;
    for (const fs::directory_entry& e : fs::recursive_directory_iterator(folder))
      if (e.is_regular_file() && std::count(endings.begin(), endings.end(), e.path().extension()))
        found.push_back(e.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Ran run(const std::string& command) {
  FILE* pipe = popen(("{ " + command + "\n} 2>&1 </dev/null").c_str(), "r");
  if (!pipe) refuse("cannot start another program");
  Ran ran{0, ""};
  char part[4096];
  for (size_t got; (got = fread(part, 1, sizeof part, pipe)) > 0;) ran.output.append(part, got);
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}
std::string shell_word(const std::string& word) { return "'" + replaced(word, "'", "'\\''") + "'"; }

Scratch::Scratch(const fs::path& inside) {
  std::string name = (inside / ".course.XXXXXX").string();
  if (!mkdtemp(name.data())) refuse("cannot write to ", inside.string());
  path_ = fs::absolute(name);
}
Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace gradus::course
