// What a call says when it refuses.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "kernels/check.h"

namespace gradus {

// The sentence of f's Error; "" if f accepts. That an exercise is open is no refusal, and the test's end.
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

// That f refuses, with `part` in its sentence.
template <class F>
void expect_refused(const std::string& part, F&& f) {
  const std::string text = refusal(f);
  EXPECT_FALSE(text.empty()) << "accepted; it should say: " << part;
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace gradus
