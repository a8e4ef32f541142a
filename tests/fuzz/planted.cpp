// Not a harness, but a test of the driver: faults that it must find. selftest.sh runs it.
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "tests/fuzz/fuzz.h"

std::string gradus::fuzz::sample(Rng& rng) { return random_bytes(rng, 3); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view fault(reinterpret_cast<const char*>(bytes), size);
  if (fault == "read") return bytes[size] == 0;
  if (fault == "throw") throw std::runtime_error("planted");
  if (fault == "wait") pause();
  if (fault == "grow")
    for (std::vector<std::string> kept;;) kept.emplace_back(1 << 20, 'x');
  EXPECT_FALSE(fault.size() > 1 && fault[0] == 'a') << "planted";
  return 0;
}
