#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/memory/cuda.h"

namespace gradus {

// The devices that can compute on this machine, for tests that run on each of them.
inline std::vector<const char*> devices_with_data() {
  std::vector<const char*> names{"cpu", "emu"};
  if (cuda_problem().empty()) names.push_back("cuda");
  return names;
}
// Runs the tests of a suite, which is a TestWithParam<const char*>, on each of them.
#define ON_DEVICES_WITH_DATA(Suite)                                                  \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::ValuesIn(devices_with_data()), \
                           [](const auto& info) { return std::string(info.param); })

}  // namespace gradus
