// That a test can fail: what a check of this kind says of a reference that is wrong.
#pragma once
#include <gtest/gtest-spi.h>

namespace gradus {

// Whether `expect` fails; the test that asks does not.
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
