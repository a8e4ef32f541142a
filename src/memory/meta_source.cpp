#include <cstring>

#include "src/memory/source.h"

namespace gradus {

namespace {

class MetaSource : public Source {
 public:
  // At most the addresses that a program has on x86-64 and aarch64: a wrong size fails here as on other
  // devices, before sums of bytes overflow or mapping its pages takes forever.
  void* acquire(int64_t bytes) override {
    if (bytes > int64_t(1) << 47) return nullptr;
    void* const p = reinterpret_cast<void*>(next_);
    next_ += uintptr_t(bytes);
    return p;
  }
  void release(void*, int64_t) noexcept override {}
  void* reserve(int64_t bytes) override { return acquire(bytes); }
  void unreserve(void*, int64_t) noexcept override {}
  bool map(void*, int64_t) override { return true; }
  void unmap(void*, int64_t) noexcept override {}
  void copy_in(void*, const void*, int64_t) override {}
  void copy_out(void* to_host, const void*, int64_t bytes) override {
    if (bytes > 0) std::memset(to_host, 0xFF, size_t(bytes));
  }
  bool has_data() const override { return false; }

 private:
  // No program has memory here on x86-64 and aarch64, so an access by mistake faults.
  uintptr_t next_ = uintptr_t(1) << 60;
};

}  // namespace

std::unique_ptr<Source> meta_source() { return std::make_unique<MetaSource>(); }

}  // namespace gradus
