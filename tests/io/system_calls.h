// A system that writes and reads less than requested, is interrupted, or fails: in programs that include
// this, these functions replace those of the C library.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>

namespace gradus {

struct SystemCalls {
  size_t most_at_once = SIZE_MAX;
  int64_t interruptions = 0;  // remaining: until then every second write or read is interrupted
  size_t room = SIZE_MAX;     // bytes left on the disk; then writing fails with disk_error
  int disk_error = 0, sync_error = 0;
  int64_t parts = 0;     // writes and reads so far
  std::string sequence;  // of the calls that make a file permanent

  bool interrupted() {
    if (parts++ % 2 == 1 || interruptions == 0) return false;
    --interruptions;
    return true;
  }
};
inline SystemCalls system_calls;

inline int failed(int error) {
  errno = error;
  return -1;
}

}  // namespace gradus

extern "C" {
[[gnu::used]] inline ssize_t write(int fd, const void* from, size_t bytes) {
  gradus::SystemCalls& s = gradus::system_calls;
  if (s.interrupted()) return gradus::failed(EINTR);
  if (s.room == 0) return gradus::failed(s.disk_error);
  bytes = std::min({bytes, s.most_at_once, s.room});
  if (s.room != SIZE_MAX) s.room -= bytes;
  return ::syscall(SYS_write, fd, from, bytes);
}
[[gnu::used]] inline ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  gradus::SystemCalls& s = gradus::system_calls;
  return s.interrupted() ? gradus::failed(EINTR)
                         : ::syscall(SYS_pread64, fd, to, std::min(bytes, s.most_at_once), at);
}
[[gnu::used]] inline int fsync(int fd) {
  gradus::SystemCalls& s = gradus::system_calls;
  struct stat status;
  s.sequence +=
      ::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) ? "sync the folder, " : "sync the file, ";
  return s.sync_error ? gradus::failed(s.sync_error) : int(::syscall(SYS_fsync, fd));
}
[[gnu::used]] inline int rename(const char* from, const char* to) noexcept {
  gradus::system_calls.sequence += "rename, ";
  return int(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
}
