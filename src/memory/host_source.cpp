// Host memory: large segments are aligned to 2 MiB and offered to the kernel as huge pages, which saves page faults.
#include <sys/mman.h>

#include <cstdlib>

#include "src/memory/allocator.h"

namespace gradus {

namespace {
class HostSource : public Source {
 public:
  void* acquire(int64_t bytes) override {
    const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
    void* p = nullptr;
    if (posix_memalign(&p, alignment, size_t(bytes)) != 0) return nullptr;
    if (bytes >= kHugePage) madvise(p, size_t(bytes), MADV_HUGEPAGE);  // a hint: failing changes nothing
    return p;
  }
  void release(void* p, int64_t) noexcept override { std::free(p); }

 private:
  static constexpr int64_t kHugePage = int64_t(2) << 20;
};
}  // namespace

std::unique_ptr<Source> host_source() { return std::make_unique<HostSource>(); }

}  // namespace gradus
