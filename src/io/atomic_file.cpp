#include "src/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "kernels/check.h"

namespace gradus {

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(path_ + ".tmp-" + std::to_string(::getpid())) {
  struct stat there;
  check(::stat(path_.c_str(), &there) != 0 || S_ISREG(there.st_mode), path_,
        " is there and is no regular file; choose another name");
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  check(fd_ >= 0, path_, " cannot be written: ", std::strerror(errno),
        " (its folder must exist and be writable)");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, int64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, from, size_t(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_with_errno("writing");
    from += n, bytes -= n, written_ += n;
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) fail_with_errno("syncing");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_errno("renaming");
  const bool closed = ::close(fd_) == 0;
  fd_ = -1;
  check(closed, path_, ": closing failed: ", std::strerror(errno));
  // The name is on the disk once its folder is. Not every file system can sync a folder; the file is
  // complete.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int folder_fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd < 0) return;
  ::fsync(folder_fd);
  ::close(folder_fd);
}

void AtomicFile::fail_with_errno(const char* doing) const {
  const int error = errno;
  fail(path_, ": ", doing, " failed after ", written_, " bytes: ", std::strerror(error),
       "; an earlier file of this name is unchanged",
       error == ENOSPC || error == EFBIG || error == EDQUOT ? ". Free some space or choose another folder"
                                                            : "");
}

void write_file(const std::string& path, std::string_view bytes) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  check(!error, path, ": its folder cannot be made: ", error.message());
  AtomicFile file(path);
  file.write(bytes.data(), int64_t(bytes.size()));
  file.commit();
}

}  // namespace gradus
