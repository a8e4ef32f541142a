#include "src/io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>

#include "kernels/check.h"

namespace gradus {

namespace fs = std::filesystem;

// Temporary files, NAME.tmp-PROCESS-NUMBER, are locked while they are written. If one can be locked, a run
// that was killed has left it, so it is removed.
static void remove_left_over(const fs::path& path) {
  const std::string prefix = path.filename().string() + ".tmp-";
  std::error_code error;
  for (fs::directory_iterator it(path.has_parent_path() ? path.parent_path() : ".", error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix) || name.find_first_not_of("0123456789-", prefix.size()) != name.npos ||
        name.find('-', prefix.size()) != name.rfind('-'))
      continue;
    const int fd = ::open(it->path().c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(it->path().c_str());
    ::close(fd);
  }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  std::error_code error, unknown;
  target_ = fs::canonical(path_, error).string();
  check(!error || !fs::is_symlink(path_, unknown), path_,
        " is a link to a file that does not exist; create the file, or remove the link");
  if (error) target_ = path_;     // no such file yet
  std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond ulimit -f is an error
  struct stat status, old = {};   // old: the file that is replaced, if any
  check(::stat(target_.c_str(), &old) != 0 || S_ISREG(old.st_mode), path_,
        " exists and is no regular file; choose a different name");
  remove_left_over(target_);
  for (int number = 0; fd_ < 0; ++number) {  // the first free name
    temporary_ = target_ + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(number);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    check(fd_ >= 0 || errno == EEXIST, path_, " cannot be written: ", std::strerror(errno),
          " (its folder must exist and be writable)");
    if (fd_ < 0) continue;
    ::flock(fd_, LOCK_EX);  // on systems without locks, no file counts as left over
    if (::fstat(fd_, &status) == 0 && status.st_nlink > 0) continue;
    ::close(std::exchange(fd_, -1));  // another run has removed it before it was locked
  }
  if (old.st_mode != 0) ::fchmod(fd_, old.st_mode & 0777);
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
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_with_errno("renaming");
  const bool closed = ::close(fd_) == 0;
  fd_ = -1;
  check(closed, path_, ": closing failed: ", std::strerror(errno));
  // The name is on the disk once the folder is. Not every file system can sync a folder; the file is complete
  // in any case.
  const std::string folder = fs::path(target_).parent_path().string();
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

void make_folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  check(!error, path, ": its folder cannot be made: ", error.message());
}

void write_file(const std::string& path, std::string_view bytes) {
  make_folder_of(path);
  AtomicFile file(path);
  file.write(bytes.data(), int64_t(bytes.size()));
  file.commit();
}

}  // namespace gradus
