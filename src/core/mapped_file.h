// A file that is mapped, not read: its bytes are memory, and come from the disk when they are touched.
#pragma once
#include <csignal>

#include "src/core/input_file.h"

namespace gradus {

class MappedFile {
 public:
  // As InputFile; refuses an empty file, too.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return file_.path(); }
  int64_t bytes() const { return file_.bytes(); }  // when it was opened
  const char* data() const { return data_; }
  // An Error if the file became shorter since, also if it has grown again: then what was touched behind its
  // end was read as zeros (the operating system's SIGBUS is turned into that). To be called after bytes were
  // used.
  void check_whole() const;

 private:
  struct Mapping;
  static Mapping mappings_[64];  // all that are alive, for the handler, which may run in any thread
  static void on_sigbus(int, siginfo_t* info, void*);
  static void handle_sigbus();

  InputFile file_;
  const char* data_;
  Mapping* mapping_ = nullptr;
};

}  // namespace gradus
