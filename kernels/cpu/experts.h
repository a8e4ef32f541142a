// Shared by the kernels of a mixture of experts.
#pragma once
#include "kernels/cpu/io.h"

namespace gradus::cpu {

inline void check_chosen(const char* op, const ExpertShape& s, CBuf experts) {
  for (int64_t i = 0; i < s.choices(); ++i) {
    const int32_t e = experts.as<int32_t>()[i];
    check(e >= 0 && e < s.E, op, ": choice ", i % s.chosen, " of token ", i / s.chosen, " is expert ", e,
          "; there are ", s.E, " experts, from 0");
  }
}

}  // namespace gradus::cpu
