// Compiles C++ while the program runs. What was compiled is kept in a folder, where the next run finds it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gradus {

class RunTimeCompiler {
 public:
  // `command`: the compiler and its flags, separated by blanks; by default those that compiled this library,
  // which find its headers. No shell reads it. The folder is made if it is missing, and refused if it is
  // somebody else's or others may write to it (what lies there is run), or if it holds other things.
  explicit RunTimeCompiler(std::string folder = "build/chains", const std::string& command = built_with());
  static std::string built_with();

  // The function of that name, extern "C" in `source`: from the folder, or compiled (a second or two). It is
  // there until the program ends. A damaged file in the folder is compiled anew. Several processes may use
  // one folder: a file appears in it when it is whole. Errors: the folder is refused, cannot be written to or
  // is full; there is no such compiler; what it says of the source.
  void* function(const std::string& source, const char* name);

  // How many sources were compiled, and how many were found.
  int64_t compiled() const { return compiled_; }
  int64_t from_folder() const { return from_folder_; }
  // Whether the folder holds what another compiler, other flags or other headers made: it stays, unused.
  bool other_version() const { return other_version_; }

 private:
  void open_folder();
  void compile(const std::string& source, const std::string& stem) const;

  std::string folder_, version_;
  std::vector<std::string> command_;
  bool open_ = false, other_version_ = false;
  std::map<std::string, void*> libraries_;  // that are loaded, by their files
  int64_t compiled_ = 0, from_folder_ = 0;
};

}  // namespace gradus
