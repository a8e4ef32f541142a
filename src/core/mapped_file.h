// A memory-mapped file: a page comes from the disk when the program first reads it.
#pragma once
#include <csignal>

#include "src/core/input_file.h"

namespace gradus {

class MappedFile {
 public:
  // Rejects the files that InputFile rejects, and empty files.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return file_.path(); }
  int64_t bytes() const { return file_.bytes(); }  // when it was opened
  const char* data() const { return data_; }
  // An Error if the file is shorter than when it was opened, or if bytes behind its end were read before it
  // grew again (they read as zeros, because the handler of SIGBUS maps zeros there). Call it after the bytes
  // were used.
  void check_whole() const;

 private:
  struct Mapping;
  static Mapping mappings_[64];  // of all live objects, for the signal handler, which may run in any thread
  static void on_sigbus(int, siginfo_t* info, void*);
  static void handle_sigbus();

  InputFile file_;
  const char* data_;
  Mapping* mapping_ = nullptr;
};

}  // namespace gradus
