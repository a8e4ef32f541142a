#include <sys/mman.h>

#include <cstdlib>

#include "src/memory/allocator.h"

namespace gradus {

namespace {

constexpr size_t kHugePage = size_t(2) << 20;

class HostSource : public Source {
 public:
  void* acquire(int64_t bytes) override {
    void* p = nullptr;
    if (posix_memalign(&p, kHugePage, size_t(bytes)) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
    madvise(p, size_t(bytes), MADV_HUGEPAGE);  // a wish; where it is not granted, pages are just smaller
#endif
    return p;
  }
  void release(void* p, int64_t) noexcept override { std::free(p); }
};

}  // namespace

std::unique_ptr<Source> host_source() { return std::make_unique<HostSource>(); }

}  // namespace gradus
