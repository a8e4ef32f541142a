// A turn (tests/kernels/kernel_testing.h) on the stand-in for cuBLAS; the other kernels are those of emu.
#pragma once
#include "tests/kernels/kernel_testing.h"
#include "tests/standin/standin.h"

namespace gradus {

inline Turn on_standins() {
  static const Backend table = standin::with_libraries(emu_backend());
  return {"standin", &table, emu::Order::Forward, Alignment::Full};
}
#define ON_STANDINS_TOO(Suite)                                               \
  INSTANTIATE_TEST_SUITE_P(Libraries, Suite, testing::Values(on_standins()), \
                           [](const auto& info) { return std::string(info.param.name); })

}  // namespace gradus
