#include "src/core/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/check.h"

namespace gradus {

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer does not block
  check(fd_ >= 0, path_, " cannot be opened: ", std::strerror(errno));
  struct stat status;
  const bool regular = ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular) ::close(fd_);  // after a throw in a constructor the destructor does not run
  check(regular, path_, " is no regular file (a folder, a pipe or a device?); name a file");
  bytes_ = status.st_size;
}

int64_t InputFile::bytes_now() const {
  struct stat status;
  return ::fstat(fd_, &status) == 0 ? int64_t(status.st_size) : 0;
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(int64_t position, int64_t bytes, void* out, const std::string& what) const {
  for (char* to = static_cast<char*>(out); bytes > 0;) {
    const ssize_t n = ::pread(fd_, to, size_t(bytes), position);
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, path_, ": reading ", what, " failed at byte ", position, ": ",
          n < 0 ? std::strerror(errno) : "the file has become shorter");
    to += n, position += n, bytes -= n;
  }
}

std::string read_text_file(const std::string& path, int64_t most) {
  const InputFile file(path);
  check(file.bytes() > 0, path, " is empty");
  check(file.bytes() <= most, path, " has ", file.bytes(), " bytes; at most ", most, " are allowed");
  std::string text(size_t(file.bytes()), '\0');
  file.read(0, file.bytes(), text.data(), "the text");
  return text;
}

}  // namespace gradus
