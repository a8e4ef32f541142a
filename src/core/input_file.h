// Reading a file that the user names: a regular one, or a sentence.
#pragma once
#include <cstdint>
#include <string>

namespace gradus {

class InputFile {
 public:
  // Refuses what cannot be opened or is no regular file; a pipe that nobody writes to is not waited for.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // when it was opened
  int64_t bytes_now() const;
  int descriptor() const { return fd_; }
  // All of these bytes, or an Error that names `what` they are and the byte where reading ended.
  void read(int64_t position, int64_t bytes, void* to, const std::string& what) const;

 private:
  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
};

// The whole file; refuses an empty one, and one of more than `most` bytes.
std::string read_text_file(const std::string& path, int64_t most = INT64_MAX);

}  // namespace gradus
