#include "src/core/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

#include "kernels/check.h"

namespace gradus {

struct MappedFile::Mapping {
  std::atomic<uintptr_t> begin{0}, end{0};  // both 0: this entry is free
  std::atomic<bool> cut{false};             // a page behind the end of the file was read
};
MappedFile::Mapping MappedFile::mappings_[64];
static struct sigaction before;

// Maps a page of zeros where the file was cut off; check_whole() reports it later. Other faults go to the
// handler that was installed before this one.
void MappedFile::on_sigbus(int, siginfo_t* info, void*) {
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE)), at = uintptr_t(info->si_addr);
  for (Mapping& m : mappings_)
    if (m.begin <= at && at < m.end) {
      m.cut = true;
      void* const there = reinterpret_cast<void*>(at / page * page);
      if (mmap(there, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == there) return;
    }
  sigaction(SIGBUS, &before, nullptr);
  raise(SIGBUS);  // delivered when this handler returns
}

void MappedFile::handle_sigbus() {
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, &before);
}

MappedFile::MappedFile(const std::string& path) : file_(path) {
  check(bytes() > 0, path, " is empty");
  void* const p = mmap(nullptr, size_t(bytes()), PROT_READ, MAP_PRIVATE, file_.descriptor(), 0);
  check(p != MAP_FAILED, path, " cannot be mapped: ", std::strerror(errno));
  data_ = static_cast<const char*>(p);
  static std::once_flag once;
  std::call_once(once, handle_sigbus);
  const uintptr_t begin = uintptr_t(data_);
  for (Mapping& m : mappings_) {
    uintptr_t none = 0;
    if (!m.begin.compare_exchange_strong(none, begin)) continue;
    m.cut = false;
    m.end = begin + uintptr_t(bytes());
    mapping_ = &m;
    return;
  }
  munmap(p, size_t(bytes()));
  fail(path, " cannot be mapped: ", std::size(mappings_), " files are mapped already, the maximum");
}

MappedFile::~MappedFile() {
  mapping_->end = 0, mapping_->begin = 0;
  munmap(const_cast<char*>(data_), size_t(bytes()));
}

void MappedFile::check_whole() const {
  check(!mapping_->cut && file_.bytes_now() >= bytes(), path(), " became shorter while it was read: it had ",
        bytes(), " bytes, and has ", file_.bytes_now());
}

}  // namespace gradus
