// Reads a regular file that the user names; every failure is an Error with a sentence.
#pragma once
#include <cstdint>
#include <string>

namespace gradus {

class InputFile {
 public:
  // Rejects a path that cannot be opened or is not a regular file. It does not wait for the writer of a pipe.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // when the file was opened
  int64_t bytes_now() const;
  int descriptor() const { return fd_; }
  // Reads all of these bytes, or throws an Error that names them (`what`) and the byte where reading ended.
  void read(int64_t position, int64_t bytes, void* to, const std::string& what) const;

 private:
  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
};

// Returns the whole file. Rejects an empty file and one of more than `most` bytes.
std::string read_text_file(const std::string& path, int64_t most = INT64_MAX);

}  // namespace gradus
