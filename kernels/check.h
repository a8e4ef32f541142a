// Errors are sentences. Everything in gradus, from the kernels up, reports bad input through check() and
// fail(); libraries throw, a program's main catches once (DESIGN: errors). It lives below src/ because
// kernels refuse too.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <exception>
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

// The sentence of the exercise that this thread met open: where an exception must not leave a loop, g++ ends
// the program without it.
inline std::string& open_exercise() {
  static thread_local std::string sentence;
  return sentence;
}

// Ends the program with the sentence of an exception that nothing can catch.
[[noreturn]] inline void end_with_sentence() {
  static std::mutex first;
  first.lock();  // for good: one thread speaks, the others wait for the end
  std::fflush(nullptr);
  try {
    if (auto error = std::current_exception()) std::rethrow_exception(error);
    std::fprintf(stderr, "%s\n", open_exercise().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  } catch (...) {
  }
  std::_Exit(1);
}

// What a stubbed exercise calls in place of its solution. `unused` takes the names that the missing lines
// would have used, so that a stubbed file compiles without warnings. No exception can leave a loop that
// OpenMP runs on several threads or as vectors; there, the program ends with the sentence.
template <class... Unused>
[[noreturn]] void todo(const char* exercise, const char* what, const Unused&... /*unused*/) {
  std::set_terminate(end_with_sentence);
  std::ostringstream text;
  text << "exercise " << exercise << " is open: " << what << " (see the README.md of lesson "
       << std::string(exercise, 2) << ")";
  open_exercise() = text.str();
  throw Error(text.str());
}

}  // namespace gradus
