// Compiles C++ at run time. The compiled code is kept in a folder, where the next run finds it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gradus {

class RunTimeCompiler {
 public:
  // The command that compiled this library's kernels of `device`, and finds their headers; for cuda, nvcc.
  static std::string built_with(const std::string& device);
  // `command`: a compiler and its flags, separated by blanks; FILE.cpp -o LIBRARY is appended. No shell reads
  // it. The folder is created if it is missing. It is rejected if it belongs to another user or others may
  // write to it (because the program runs the code in it), or if it holds other files.
  RunTimeCompiler(std::string folder, const std::string& command);

  // The function `name`, extern "C" in `source`: from the folder, or compiled (a second or two). It can be
  // called until the program ends. A damaged file in the folder is replaced. Several processes may use one
  // folder: a file appears in it when it is complete. Errors: the folder is rejected, cannot be written to or
  // is full; there is no such compiler; the compiler reports an error.
  void* function(const std::string& source, const char* name);

  // Why nothing can be compiled, or loaded from the folder: function()'s Error for a small source; else "".
  std::string problem();

  // How many sources were compiled, and how many were found in the folder.
  int64_t compiled() const { return compiled_; }
  int64_t from_folder() const { return from_folder_; }
  // Whether the folder was last used with a different compiler, flags or headers. Their files stay, unused.
  bool other_version() const { return other_version_; }

 private:
  void open_folder();
  void compile(const std::string& source, const std::string& stem) const;

  std::string folder_, version_;
  std::vector<std::string> command_;
  bool open_ = false, other_version_ = false;
  std::map<std::string, void*> libraries_;  // loaded libraries, by file
  int64_t compiled_ = 0, from_folder_ = 0;
};

}  // namespace gradus
