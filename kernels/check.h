// Errors are sentences. Everything in gradus, from the kernels up, reports bad input through check() and
// fail(); libraries throw, a program's main catches once (DESIGN: errors). It lives below src/ because
// kernels refuse too.
#pragma once
#include <cstdio>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>

namespace gradus {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// fail("matmul: x is ", shape, "; give it a matrix") throws Error with the parts streamed together.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(text.str());
}

// The parts are only streamed when the condition is false, so a check costs one branch.
template <class... Parts>
void check(bool ok, const Parts&... parts) {
  if (!ok) fail(parts...);
}

// Throws the sentence of an open exercise. No exception can leave a loop that OpenMP runs on several threads
// or as vectors: there the program ends, and says the sentence.
[[noreturn]] inline void open_exercise(const std::string& text) {
  static std::mutex one_thread;
  static std::string sentence;
  one_thread.lock();
  sentence = text;
  std::set_terminate([] {
    one_thread.lock();  // for good: the others wait for the end
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", sentence.c_str());
    std::_Exit(1);
  });
  one_thread.unlock();
  throw Error(text);
}

// What a stubbed exercise calls in place of its solution. `unused` takes the names that the missing lines
// would have used, so that a stubbed file compiles without warnings.
template <class... Unused>
[[noreturn]] void todo(const char* exercise, const char* what, const Unused&... /*unused*/) {
  open_exercise(std::string("exercise ") + exercise + " is open: " + what + " (see the README.md of lesson " +
                std::string(exercise, 2) + ")");
}

}  // namespace gradus
