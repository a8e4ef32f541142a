// For testing that a check fails if its reference is wrong.
#pragma once
#include <gtest/gtest-spi.h>

namespace gradus {

// Whether `expect` fails; that does not fail the calling test.
template <class F>
bool is_rejected(F&& expect) {
  testing::TestPartResultArray found;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(&found);
    expect();
  }
  return found.size() > 0;
}

}  // namespace gradus
