// Writing a file so that a crash, a full disk or an error never damages the one that was there before: the
// bytes go to a temporary name in the same folder, are synced to the disk, and only then take the name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace gradus {

class AtomicFile {
 public:
  // Creates the temporary file; its folder must exist. Links are followed. What killed runs left is removed.
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(): removes it and leaves the old file as it was
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, int64_t bytes);
  void commit();  // sync, rename over `path`, sync the folder

 private:
  [[noreturn]] void fail_with_errno(const char* doing) const;

  std::string path_, target_, temporary_;
  int fd_ = -1;
  int64_t written_ = 0;
};

// The folder that a file is to be written to.
void make_folder_of(const std::string& path);
// The whole file at once; its folder is made if missing.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace gradus
