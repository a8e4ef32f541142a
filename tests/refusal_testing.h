// Tests that a call rejects its arguments, and of its message.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "kernels/check.h"

namespace gradus {

// The message of f's Error; "" if f accepts. The Error of an open exercise is not caught, so it ends the
// test.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    if (std::string_view(e.what()).find(" is open: ") != std::string::npos) throw;
    return e.what();
  }
  return "";
}

// Expects an Error of f with `part` in its message.
template <class F>
void expect_refused(const std::string& part, F&& f) {
  const std::string text = refusal(f);
  EXPECT_FALSE(text.empty()) << "accepted, but expected the error: " << part;
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace gradus
