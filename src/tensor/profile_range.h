// A named range, in the Ranges of the context that is current when it begins.
#pragma once
#include "src/tensor/context.h"

namespace gradus {

class ProfileRange : public OpenRange {
 public:
  explicit ProfileRange(const char* name, int64_t bytes = 0) : OpenRange(&current().ranges, name, bytes) {}
};

}  // namespace gradus
