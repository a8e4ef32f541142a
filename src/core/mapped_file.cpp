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

// The mappings that are alive, for the handler of SIGBUS, which may run in any thread at any time.
struct Mapping {
  std::atomic<uintptr_t> begin{0}, end{0};  // both 0: free
};
static Mapping mappings[64];
static struct sigaction before;

// Puts a page of zeros where there is no file any more; check_whole() says so later. A fault that is nobody's
// goes to who was there before.
static void on_sigbus(int, siginfo_t* info, void*) {
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE)), at = uintptr_t(info->si_addr);
  for (const Mapping& m : mappings)
    if (m.begin <= at && at < m.end) {
      mmap(reinterpret_cast<void*>(at / page * page), page, PROT_READ,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      return;
    }
  sigaction(SIGBUS, &before, nullptr);
  raise(SIGBUS);  // after this
}

static void handle_sigbus() {
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
  for (Mapping& m : mappings) {
    uintptr_t none = 0;
    if (!m.begin.compare_exchange_strong(none, begin)) continue;
    m.end = begin + uintptr_t(bytes());
    return;
  }
  munmap(p, size_t(bytes()));
  fail(path, " is not mapped: ", std::size(mappings), " files are already, the most at a time");
}

MappedFile::~MappedFile() {
  for (Mapping& m : mappings)
    if (m.begin == uintptr_t(data_)) m.end = 0, m.begin = 0;
  munmap(const_cast<char*>(data_), size_t(bytes()));
}

void MappedFile::check_whole() const {
  check(file_.bytes_now() >= bytes(), path(), " has become shorter while it was read: it had ", bytes(),
        " bytes, and has ", file_.bytes_now());
}

}  // namespace gradus
