#pragma once
#include <vector>

#include "src/memory/cuda.h"

namespace gradus {

// The devices that can compute on this machine, for tests that run on each of them.
inline std::vector<const char*> devices_with_data() {
  std::vector<const char*> names{"cpu", "emu"};
  if (cuda_problem(cuda_facts()).empty()) names.push_back("cuda");
  return names;
}

}  // namespace gradus
