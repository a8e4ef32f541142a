#include "kernels/fiber.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>

namespace gradus {
namespace {

struct Switch {
  Fiber caller;
  std::unique_ptr<Fiber> callee = std::make_unique<Fiber>(size_t(1) << 16);
  char* array = nullptr;
};

// Stops in the middle of a call that has an array, around which AddressSanitizer puts red zones.
void stop_in_the_middle(void* argument) {
  auto& s = *static_cast<Switch*>(argument);
  char array[100];
  s.array = array;
  s.callee->switch_to(s.caller);
}

// Pages that are mapped later may get the addresses of a fiber's stack. Red zones that AddressSanitizer still
// has there would make a correct access an error.
TEST(L01_Fiber, ItsStackLeavesNoRedZones) {
  Switch s;
  s.callee->start(stop_in_the_middle, &s);
  s.caller.switch_to(*s.callee);
  const auto size = size_t(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(s.array) / size * size;
  s.callee.reset();
  void* const page = mmap(reinterpret_cast<void*>(address), size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(page), address);
  std::memset(page, 1, size);
  munmap(page, size);
}

}  // namespace
}  // namespace gradus
