// An error message is a sentence. All of gradus reports bad input through check() and fail(): libraries
// throw, and a program's main catches once. This file is in kernels/, because kernels check their arguments,
// too.
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

// Throws an Error that names the open exercise. An exception cannot leave a loop that OpenMP runs on several
// threads or vectorizes: there C++ terminates the program, and the handler set here prints the message.
[[noreturn]] inline void open_exercise(const std::string& text) {
  static std::mutex one_thread;
  static std::string sentence;
  one_thread.lock();
  sentence = text;
  std::set_terminate([] {
    one_thread.lock();  // never unlocked: other threads wait here until the process ends
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", sentence.c_str());
    std::_Exit(1);
  });
  one_thread.unlock();
  throw Error(text);
}

// A stubbed exercise calls this in place of its solution. `unused` takes the names that the missing lines
// would have used, so that a stubbed file compiles without warnings.
template <class... Unused>
[[noreturn]] void todo(const char* exercise, const char* what, const Unused&... /*unused*/) {
  open_exercise(std::string("exercise ") + exercise + " is open: " + what + " (see the README.md of lesson " +
                std::string(exercise, 2) + ")");
}

}  // namespace gradus
