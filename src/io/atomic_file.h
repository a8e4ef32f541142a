// Writes a file so that a crash, a full disk or an error never damages the previous file of that name: the
// bytes go to a temporary file in the same folder, are synced to the disk, and only then get the name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace gradus {

class AtomicFile {
 public:
  // Creates the temporary file; its folder must exist. Follows links, and removes what killed runs have left.
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

// Creates the folder of a file that will be written.
void make_folder_of(const std::string& path);
// Writes the whole file at once; creates its folder if missing.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace gradus
