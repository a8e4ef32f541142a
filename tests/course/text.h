// Text, files and other programs, for the tools of the course.
#pragma once
#include <filesystem>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace gradus::course {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;
using Names = std::set<std::string>;

template <class... Parts>
std::string say(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// Thrown for a wrong call, or a tree in which the command cannot work: the message, and exit code 2.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw Refusal(say(parts...));
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
std::string trimmed(const std::string& text);
std::string replaced(std::string text, const std::string& from, const std::string& to);  // all occurrences
// The text after `before`, up to a character of `end` or the end of the text; "" without `before`.
std::string after(const std::string& text, const std::string& before, const std::string& end = "\n");

// The lines of a text, without newlines; empty lines too, except after the last newline.
Lines lines_of(const std::string& text);
std::string text_of(const Lines& lines);
template <class Words>
std::string joined(const Words& words, const std::string& between = " ") {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : between) + w;
  return text;
}

std::string read(const fs::path& file);  // "" if it does not exist
void write(const fs::path& file, const std::string& text);
// All files below these folders with one of the endings, sorted bytewise.
Lines files(const Lines& folders, const Lines& endings);
inline const Lines kCode{".h", ".cpp", ".cu", ".inc"};

// The result of a shell command with empty standard input. `output` includes standard error.
struct Ran {
  int code;
  std::string output;
  bool good() const { return code == 0; }
};
Ran run(const std::string& command);
std::string shell_word(const std::string& word);  // quoted as one word of the shell

// A temporary folder, which the destructor removes.
class Scratch {
 public:
  explicit Scratch(const fs::path& inside = fs::temp_directory_path());
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace gradus::course
