// Makes the n-th kernel call of a device fail (the kernel throws, or no memory is left from then on), or its
// n-th allocation.
#pragma once
#include "src/tensor/context.h"

// Allocator::allocate, and the function that its callers reach in its place: the linker exchanges the two
// (--wrap, in tests.mk, for programs that include this file).
#define GRADUS_ALLOCATE \
  "_ZN6gradus9Allocator8allocateElNS_4KindESt17basic_string_viewIcSt11char_traitsIcEERKNS_5ShapeE"

namespace gradus {

Block* real_allocate(Allocator*, int64_t bytes, Kind, std::string_view name,
                     const Shape&) asm("__real_" GRADUS_ALLOCATE);
Block* counted_allocate(Allocator*, int64_t bytes, Kind, std::string_view name,
                        const Shape&) asm("__wrap_" GRADUS_ALLOCATE);

struct Faults {
  enum class What : uint8_t { KernelThrows, MemoryEnds, AllocationFails };
  inline static const Backend* real = nullptr;
  inline static Device* device = nullptr;
  inline static std::vector<Tensor> taken;  // all memory that was free
  inline static int64_t left = 0;           // kernel calls or allocations until the fault; 0: no fault
  inline static What what = What::KernelThrows;

  // One table per device, which outlives the device.
  static const Backend& table(const Backend& of) {
    static std::map<std::string, Backend> tables;
    return tables.try_emplace(of.name, make(of)).first->second;
  }
  static void arm(Device& on, What fault, int64_t n) {  // once per device
    device = &on, what = fault, left = n;
    real = &on.backend();
    on.use(table(*real));
  }
  inline static bool fired = false;  // the fault happened before disarm()
  static void disarm() {
    fired = left == 0;
    left = 0;
    taken.clear();
    if (device) device->allocator().set_budget(0);
  }
  static void count_kernel() {
    if (what == What::AllocationFails || left == 0 || --left > 0) return;
    check(what == What::MemoryEnds, "injected: a kernel failed");
    device->allocator().set_budget(1);
    for (int64_t bytes = int64_t(1) << 24; bytes >= 1; bytes /= 2) try {
        for (;;) taken.emplace_back(*device, Shape{bytes}, DType::U8, Kind::Other, "taken");
      } catch (const OutOfMemory&) {  // no block of this size is left
      }
  }
  static void count_allocation(const Allocator& by, int64_t bytes, Kind kind, std::string_view name,
                               const Shape& shape) {
    if (what != What::AllocationFails || left == 0 || &by != &device->allocator() || --left > 0) return;
    throw OutOfMemory(out_of_memory_text(by, bytes, kind, name, shape));
  }

 private:
  template <auto Entry>
  struct Counted;
  template <class... A, void (*Backend::*Entry)(A...)>
  struct Counted<Entry> {
    static void call(A... a) {
      count_kernel();
      (real->*Entry)(a...);
    }
  };
  static Backend make(const Backend& of) {
    return {
        .name = of.name,
#define GRADUS_KERNEL(entry, ...) .entry = Counted<&Backend::entry>::call,
#include "kernels/entries.inc"
    };
  }
};

[[gnu::used]] inline Block* counted_allocate(Allocator* by, int64_t bytes, Kind kind, std::string_view name,
                                             const Shape& shape) {
  Faults::count_allocation(*by, bytes, kind, name, shape);
  return real_allocate(by, bytes, kind, name, shape);
}

}  // namespace gradus
