// What the tools of the course do with text, files and other programs.
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

// A wrong call, or a tree in which it cannot be answered: the sentence, and exit code 2.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw Refusal(say(parts...));
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
std::string trimmed(const std::string& text);
std::string replaced(std::string text, const std::string& from, const std::string& to);  // each of them
// What stands behind `before`, up to `end` or to the end of the text; "" if `before` is not there.
std::string after(const std::string& text, const std::string& before, const std::string& end = "\n");

// A line each, without their ends; the empty ones too, but for one at the end of the text.
Lines lines_of(const std::string& text);
std::string text_of(const Lines& lines);
template <class Words>
std::string joined(const Words& words, const std::string& between = " ") {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : between) + w;
  return text;
}

std::string read(const fs::path& file);  // "" if it is not there
void write(const fs::path& file, const std::string& text);
// All files below these folders with one of the endings, sorted by their bytes.
Lines files(const Lines& folders, const Lines& endings);
inline const Lines kCode{".h", ".cpp", ".cu", ".inc"};

// A command of the shell, with nothing to read; what it prints, errors too.
struct Ran {
  int code;
  std::string output;
  bool good() const { return code == 0; }
};
Ran run(const std::string& command);
std::string shell_word(const std::string& word);  // as one word of the shell

// A folder that is gone when this is.
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
